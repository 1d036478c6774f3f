"""`fama_french`: monthly US stock market factors since July 1926 from the package `arch`, without a download.

The task is to forecast next month's market return from this month's factors. Returns are nearly unpredictable: expect
an R² near 0, of either sign. `fama_french` splits the months once. `fama_french/1940s` to `fama_french/2010s` are the
folds of a walk-forward validation, each tested on a decade and trained on all earlier months. In
`fama_french/1940s_size` to `fama_french/2010s_size`, the target is the absolute return.

Importing this module registers the builder with TensorFlow Datasets, for `tfds.load("fama_french")`.
"""

from collections.abc import Iterator

import numpy as np
import tensorflow_datasets as tfds

from pipelines.data import french_factors
from pipelines.data.french_factors import DECADES, FACTORS, MARKET, MONTHS, SIZE

NAME = "fama_french"
WHOLE = "whole"
"""The default configuration: all months, split once."""

_CITATION = """\
@article{fama1993common,
  title={Common risk factors in the returns on stocks and bonds},
  author={Fama, Eugene F. and French, Kenneth R.},
  journal={Journal of Financial Economics},
  volume={33},
  number={1},
  pages={3--56},
  year={1993}
}
"""
_FOLD = "Tested on the {}; the last fifth of the earlier examples is the validation split."
_CONFIGS = {
    WHOLE: "Consecutive splits in time: 70% training, 15% validation, 15% test.",
    **{decade: _FOLD.format(decade) for decade in DECADES},
    **{f"{decade}{SIZE}": f"{_FOLD.format(decade)} The target is the absolute return." for decade in DECADES},
}


class FamaFrench(tfds.core.GeneratorBasedBuilder):
    """Factors of each month, and the market's excess return in the following month."""

    name = NAME
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First version."}  # noqa: RUF012 - TFDS reads a plain class attribute
    BUILDER_CONFIGS = [  # noqa: RUF012 - as above
        tfds.core.BuilderConfig(name=name, description=description) for name, description in _CONFIGS.items()
    ]

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=(
                "Monthly Fama-French factors of the US stock market, July 1926 to November 2018, in percent, as "
                f"packaged by arch. `features` are {', '.join(FACTORS)} of a month: the market's return "
                "above the risk-free rate, small minus big, high minus low book-to-market, and the risk-free rate. "
                "`target` is Mkt-RF of the next month, or its absolute value; `month` is that of the features, YYYYMM."
            ),
            features=tfds.features.FeaturesDict(
                {
                    "features": tfds.features.Tensor(shape=(len(FACTORS),), dtype=np.float32),
                    "target": tfds.features.Tensor(shape=(1,), dtype=np.float32),
                    "month": tfds.features.Scalar(dtype=np.int64),
                }
            ),
            supervised_keys=("features", "target"),
            homepage="https://mba.tuck.dartmouth.edu/pages/faculty/ken.french/data_library.html",
            citation=_CITATION,
            license="Data: Kenneth R. French's Data Library. arch, which packages it: University of Illinois/NCSA.",
            disable_shuffling=True,  # Keeps the chronological order.
        )

    def _split_generators(self, _: tfds.download.DownloadManager) -> dict[str, Iterator[tuple[int, dict[str, object]]]]:
        factors = french_factors.read()
        name = self.builder_config.name
        parts = french_factors.shares() if name == WHOLE else french_factors.fold(name.removesuffix(SIZE))
        targets = factors[1:, MARKET : MARKET + 1]
        if name.endswith(SIZE):
            targets = np.abs(targets)
        return {split: self._generate_examples(factors, targets, rows) for split, rows in parts.items()}

    def _generate_examples(
        self, factors: np.ndarray, targets: np.ndarray, rows: range
    ) -> Iterator[tuple[int, dict[str, object]]]:
        for row in rows:
            yield row, {"features": factors[row], "target": targets[row], "month": int(MONTHS[row])}

"""`fama_french`: monthly US stock market factors since July 1926, shipped by the package `arch`: no download.

The task is to forecast next month's market return from this month's factors. Returns are close to unpredictable, so an
R^2 near 0, of either sign, is what to expect.

Importing this module registers the builder with TensorFlow Datasets; `tfds.load("fama_french")` then works like any
other.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow_datasets as tfds

NAME = "fama_french"
FACTORS = ("Mkt-RF", "SMB", "HML", "RF")
# Of the months in their order: the first 70 % train, the next 15 % validate, the last 15 % test. The shares are ours.
PERCENT = {"train": 70, "validation": 15, "test": 15}

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


def split(count: int) -> dict[str, range]:
    """Cuts a series into training, validation and test, in the order of time.

    Args:
        count: examples of the series.

    Returns:
        For each split the positions of its examples.

    Example:
        split(1108)["test"]  # range(941, 1108)
    """
    ends = [count * percent // 100 for percent in np.cumsum([0, *PERCENT.values()]).tolist()]
    return {name: range(*part) for name, part in zip(PERCENT, itertools.pairwise(ends), strict=True)}


class FamaFrench(tfds.core.GeneratorBasedBuilder):
    """The factors of a month, and the market's excess return in the month after it."""

    name = NAME
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First version."}  # noqa: RUF012 - TFDS reads a plain class attribute

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=(
                "Monthly Fama-French factors of the US stock market, July 1926 to November 2018, in percent, as "
                f"shipped by the package arch. `features` are {', '.join(FACTORS)} of a month: the market's return "
                "above the risk-free rate, small minus big, high minus low book-to-market, and the risk-free rate. "
                "`target` is Mkt-RF of the month after it; `month` is the month of the features, as YYYYMM. "
                "The splits follow each other in time: 70 % training, 15 % validation, 15 % test."
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
            disable_shuffling=True,  # The files keep the order of time.
        )

    def _split_generators(self, _: tfds.download.DownloadManager) -> dict[str, Iterator[tuple[int, dict[str, object]]]]:
        from arch.data import frenchdata

        table = frenchdata.load()
        factors = table[list(FACTORS)].to_numpy(np.float32)
        # The index was read as nanoseconds since 1970, and is YYYYMM.
        months = table.index.as_unit("ns").asi8
        # The last month has no month after it.
        parts = split(len(factors) - 1)
        return {name: self._generate_examples(factors, months, rows) for name, rows in parts.items()}

    def _generate_examples(
        self, factors: np.ndarray, months: np.ndarray, rows: range
    ) -> Iterator[tuple[int, dict[str, object]]]:
        market = FACTORS.index("Mkt-RF")
        for row in rows:
            target = factors[row + 1, market : market + 1]
            yield row, {"features": factors[row], "target": target, "month": int(months[row])}

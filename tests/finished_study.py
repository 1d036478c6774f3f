"""Toy data under the names of the studies' data sets, and checks of a finished study."""

import csv

import numpy as np
import tensorflow_datasets as tfds

from pipelines.studies.run.budget import reduced
from tests.pages import unwrapped
from tests.toy_data import ToyData

# Small enough that every arm trains for one epoch on the toy data.
BUDGET = "1e-06"
RESULT = "\n| test split, "
"""In the report of a run that has been evaluated."""
IMAGES = {"mnist": ((28, 28, 1), 10), "cifar10": ((32, 32, 3), 10), "cifar100": ((32, 32, 3), 100)}


def prepare(root):
    """Writes the data sets."""
    for name in IMAGES:
        _prepare(root, name)
    return root


def _prepare(root, name):
    (side, *_, channels), classes = IMAGES[name]
    source = ToyData(side=side, validation=False)
    source.counts = {"train": 600, "test": 120}

    class Toy(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        # Another version would not be accepted as the data set.
        VERSION = tfds.builder_cls(name).VERSION

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(side, side, channels)),
                "label": tfds.features.ClassLabel(num_classes=classes),
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _):
            return {split: self._generate_examples(split) for split in source.counts}

        def _generate_examples(self, split):
            examples = source.load("toy", split)
            for number, (image, label) in enumerate(zip(examples.images, examples.labels, strict=True)):
                yield number, {"image": np.repeat(image, channels, axis=2), "label": int(label)}

    Toy.name = name
    Toy(data_dir=root).download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))


def label_of(study):
    """Returns the label of a study's tables and figures."""
    return reduced(study.arms, study.seeds, float(BUDGET), label=study.label).label


def assert_complete(folder, study, arms=()):
    """Checks the folder of a finished study of runs by seeds."""
    label = label_of(study)
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == list(arms or study.arms)
    assert {(row["state"], row["schedule"]) for row in rows} == {("finished", label)}
    assert all(int(row["test_examples"]) for row in rows)
    page = (folder / "README.md").read_text()
    # Under every figure and every table except "How it was made".
    assert unwrapped(page).count(label) == page.count("![") + page.count("\n\n|") - 1
    assert f"reproduce {study.name} --budget {BUDGET}" in page
    # Every arm has a single seed.
    assert "over seeds" not in unwrapped(page)
    shown = [line.partition("](")[2].rstrip(")") for line in page.splitlines() if line.startswith("![")]
    assert shown
    assert all((folder / figure).stat().st_size > 3000 for figure in shown)
    assert not list(folder.rglob(".*"))
    # A run that was killed during its evaluation is evaluated again, report included.
    assert all(RESULT in path.read_text() for path in folder.glob("runs/*/report.md"))

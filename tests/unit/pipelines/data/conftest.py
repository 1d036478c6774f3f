"""Data sets: the real digits of mnist_5k, and tiny random ones of any kind."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds


@pytest.fixture(scope="session")
def digits(mnist_5k):
    """A folder of data sets with mnist_5k; read only."""
    return mnist_5k


@pytest.fixture(scope="session")
def factors(fama_french):
    """A folder of data sets with fama_french; read only."""
    return fama_french


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Folders of data sets that `tiny` has prepared, by their content."""
    return {"root": tmp_path_factory.mktemp("prepared")}


@pytest.fixture
def tiny(tmp_path, prepared):
    """A function that prepares a data set of random images and returns its folder, which the test may change."""

    def make(splits, **options):
        holds = str((splits, options))
        if holds not in prepared:
            prepared[holds] = prepare_tiny(prepared["root"] / str(len(prepared)), splits, **options)
        here = prepared[holds]
        return str(shutil.copytree(here, tmp_path / here.parent.name / here.name))

    return make


def prepare_tiny(
    root, splits, *, name="tiny", image=None, label=None, shape=(4, 4, 1), classes=3, dtype=np.uint8, vectors=None
):
    features = {
        "image": image or tfds.features.Image(shape=shape),
        "label": label or tfds.features.ClassLabel(num_classes=classes),
        **(vectors or {}),
    }

    class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("2.1.0")

        def _info(self):
            selected = {name: feature for name, feature in features.items() if feature != "none"}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(selected))

        def _split_generators(self, _):
            return {name: self._generate_examples(name, count) for name, count in splits.items()}

        def _generate_examples(self, name, count):
            # The first two pixels are the numbers of the split and of the example.
            random = np.random.default_rng(0)
            for number in range(count):
                pixels = random.integers(0, 256, shape, dtype)
                pixels.flat[:2] = list(splits).index(name), number
                example = {"image": pixels, "label": number % classes}
                example |= {key: np.zeros(value.shape, value.np_dtype) for key, value in (vectors or {}).items()}
                yield number, {key: value for key, value in example.items() if features[key] != "none"}

    Tiny.name = name
    builder = Tiny(data_dir=root)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
    return Path(builder.data_dir)

"""Data sets: the real digits of mnist_5k, and tiny random ones of any kind."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from pipelines.data.catalog import prepare


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A folder of data sets with mnist_5k; read only."""
    root = tmp_path_factory.mktemp("data_sets")
    prepare("mnist_5k", root)
    return root


@pytest.fixture(scope="session")
def factors(tmp_path_factory):
    """A folder of data sets with fama_french; read only."""
    root = tmp_path_factory.mktemp("factor_sets")
    prepare("fama_french", root)
    return root


@pytest.fixture
def tiny(tmp_path):
    """A function that prepares a data set of random images and returns its folder."""

    def make(splits, *, name="tiny", image=None, label=None, shape=(4, 4, 1), classes=3, dtype=np.uint8, vectors=None):
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
        builder = Tiny(data_dir=tmp_path)
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
        return str(builder.data_dir)

    return make

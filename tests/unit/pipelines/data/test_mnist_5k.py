import hashlib

import numpy as np
import tensorflow_datasets as tfds

from pipelines.data.mnist_5k import split
from pipelines.data.sources import describe, load
from tests.digits import all_digits

SPLITS = {"train": 4000, "validation": 500, "test": 500}


def test_every_split_has_its_share_of_each_class():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 500))
    parts = split(labels)
    assert {name: len(rows) for name, rows in parts.items()} == SPLITS
    for rows in parts.values():
        assert np.bincount(labels[rows]).tolist() == [len(rows) // 10] * 10
    assert sorted(np.concatenate(list(parts.values()))) == list(range(5000))


def test_the_split_never_changes():
    parts = split(np.repeat(np.arange(10), 500))
    drawn = np.concatenate([parts[name] for name in SPLITS]).astype("<i8")
    assert hashlib.sha256(drawn.tobytes()).hexdigest() == (
        "bbc273a39c3a08b89878a1353e6c3eef9616619fdb2b953c5377fd85b2467e78"
    )


def test_the_prepared_data_are_the_shipped_digits_each_once(digits):
    shipped = sorted((image.tobytes(), int(label)) for image, label in zip(*all_digits(), strict=True))
    found = []
    for name, count in SPLITS.items():
        examples = load("mnist_5k", name, digits)
        assert examples.images.shape == (count, 28, 28, 1)
        assert np.bincount(examples.labels).tolist() == [count // 10] * 10
        found += [(image.tobytes(), int(label)) for image, label in zip(examples.images, examples.labels, strict=True)]
    assert sorted(found) == shipped


def test_mnist_5k_is_described_like_mnist(digits):
    info = describe("mnist_5k", digits, validation=123)  # Ignored: there is a validation split.
    assert (info.name, info.version, info.shape) == ("mnist_5k", "1.0.0", (28, 28, 1))
    assert info.labels == tuple("0123456789")
    assert info.counts == SPLITS


def test_tfds_knows_it_by_name_with_its_licence(digits):
    builder = tfds.builder("mnist_5k", data_dir=digits)
    assert "Share Alike" in builder.info.redistribution_info.license
    assert "LeCun" in builder.info.citation
    assert builder.info.supervised_keys == ("image", "label")

"""Published data sets, where they are prepared; mostly their test splits, which load in seconds."""

import numpy as np
import pytest

from pipelines.core.config import Subset
from pipelines.data.selection import published_order
from pipelines.data.sources import describe, load

CLASS_IDS = {"airplane": 0, "truck": 9}


@pytest.mark.parametrize(
    ("name", "shape", "classes", "train"),
    [("mnist", (28, 28, 1), 10, 60_000), ("cifar10", (32, 32, 3), 10, 50_000), ("cifar100", (32, 32, 3), 100, 50_000)],
)
def test_descriptions_have_the_published_shapes_and_counts(real_data, name, shape, classes, train):
    info = describe(name, real_data(name), validation=5000)
    assert (info.name, info.shape, len(info.labels)) == (name, shape, classes)
    assert info.counts == {"train": train - 5000, "validation": 5000, "test": 10_000}


def test_mnist_test_images_have_the_published_classes_and_mean(real_data):
    test = load("mnist", "test", real_data("mnist"))
    assert np.bincount(test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert test.images.mean() == pytest.approx(33.79, abs=0.01)


@pytest.mark.parametrize(
    ("split", "first"), [("train", [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]), ("test", [7, 2, 1, 0, 4, 1, 4, 9, 5, 9])]
)
def test_published_order_restores_the_first_mnist_labels(real_data, split, first):
    labels = load("mnist", split, real_data("mnist")).labels
    assert labels[published_order(split, len(labels))][:10].tolist() == first


@pytest.mark.parametrize(("seed", "share_of_ones"), [(0, 0.1245), (1, 0.119), (2, 0.111)])
def test_a_seed_draws_the_same_test_images_as_the_numpy_study(real_data, seed, share_of_ones):
    """The study recorded the share of ones as the accuracy of plain nets, which guess."""
    drawn = load("mnist", "test", real_data("mnist"), part=Subset(train=6000, test=2000, seed=seed))
    assert (drawn.labels == 1).mean() == share_of_ones


def test_cifar10_test_images_have_the_published_classes_and_means(real_data):
    """The files are Parquet, not TFRecords."""
    data_dir = real_data("cifar10")
    labels = describe("cifar10", data_dir).labels
    assert {name: labels.index(name) for name in CLASS_IDS} == CLASS_IDS
    test = load("cifar10", "test", data_dir)
    assert np.bincount(test.labels).tolist() == [1000] * 10
    np.testing.assert_allclose(test.images.mean((0, 1, 2)) / 255, [0.4942, 0.4851, 0.4504], atol=1e-4)

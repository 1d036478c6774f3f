import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from pipelines.core.config import Augment
from pipelines.data.augment import augment
from pipelines.data.mixing import erased, shares

IMAGES = np.random.default_rng(0).uniform(0.1, 1, (40, 9, 8, 3)).astype(np.float32)
TARGETS = np.eye(40, dtype=np.float32)
NEIGHBOURS = np.arange(40) ^ 1


def augmented(settings, images=IMAGES, targets=TARGETS, **options):
    made = augment(tf.constant(images), tf.constant(targets), settings, tf.constant([1, 2], tf.int64), **options)
    return [each.numpy() for each in made]


@pytest.mark.parametrize("side", [1, 3, 4])
def test_cutout_erases_a_square_around_a_random_pixel(side):
    places = np.stack(np.meshgrid(np.arange(9), np.arange(8), indexing="ij"), -1).reshape(-1, 2)
    images = np.ones((len(places), 9, 8, 1), np.float32)
    found = erased(tf.constant(images), side, tf.constant((places + 0.5) / (9, 8), tf.float32)).numpy()
    for image, (row, column) in zip(found, places - side // 2, strict=True):
        expected = np.ones((9, 8, 1), np.float32)
        expected[max(row, 0) : row + side, max(column, 0) : column + side] = 0
        np.testing.assert_array_equal(image, expected)


def test_mixup_mixes_neighbours_and_their_targets_by_one_share():
    images, targets = augmented(Augment(mixup=0.4))
    kept = targets[range(40), range(40)]
    assert len(set(kept)) == 40
    np.testing.assert_allclose(targets[range(40), NEIGHBOURS], 1 - kept, rtol=1e-5)
    share = kept[:, None, None, None]
    np.testing.assert_allclose(images, share * IMAGES + (1 - share) * IMAGES[NEIGHBOURS], rtol=1e-5)


def test_cutmix_takes_a_rectangle_of_the_neighbour_and_its_share_of_the_target():
    images, targets = augmented(Augment(cutmix=1.0))
    foreign = (images == IMAGES[NEIGHBOURS]).all(axis=-1)
    assert ((images == IMAGES).all(axis=-1) ^ foreign).all()
    np.testing.assert_allclose(targets[range(40), NEIGHBOURS], foreign.mean(axis=(1, 2)), atol=1e-6)
    np.testing.assert_allclose(targets.sum(axis=1), 1, rtol=1e-6)
    for mask in foreign:
        assert (mask == mask.any(axis=1)[:, None] & mask.any(axis=0)).all()
    assert 0.1 < foreign.mean() < 0.6


@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0, 5.0])
def test_shares_are_betas(alpha):
    found = shares(20_000, alpha, tf.constant([0, 0])).numpy()
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 1
    assert found.mean() == pytest.approx(0.5, abs=0.01)
    assert found.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)


def test_the_last_image_of_an_odd_batch_keeps_itself():
    images, targets = augmented(Augment(mixup=1.0), IMAGES[:3], TARGETS[:3, :3])
    np.testing.assert_allclose(images[2], IMAGES[2], rtol=1e-6)
    np.testing.assert_allclose(targets[2], TARGETS[2, :3])


def test_images_are_mixed_by_mixup_or_by_cutmix():
    with pytest.raises(ValidationError, match="mixed by mixup or by cutmix"):
        Augment(mixup=0.1, cutmix=0.1)

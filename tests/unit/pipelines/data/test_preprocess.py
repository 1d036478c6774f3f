from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipelines.core.config import Preprocess
from pipelines.core.errors import UserError
from pipelines.core.run import TableColumn
from pipelines.data.preprocess import FLAT, LIMIT, Fitted, apply, fit, in_units, load, save, standardized

shapes = st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(1, 7), st.sampled_from([1, 3]))
images = shapes.flatmap(lambda shape: arrays(np.uint8, shape))
chosen = st.builds(
    Preprocess,
    scale=st.sampled_from([1 / 255, 1 / 256, 1.0, 2 / 255]),
    offset=st.sampled_from([0.0, -1.0, 0.5]),
    contrast=st.none() | st.floats(0.1, 5),
    mean=st.sampled_from(["none", "channel", "pixel"]),
)


def reference(chosen, images, training):
    """The reference in NumPy, in float64, image by image."""

    def one(image):
        x = image.astype(np.float64) * chosen.scale + chosen.offset
        if chosen.contrast is None:
            return x
        x = x - x.mean()
        return chosen.contrast * x / max(x.std(), FLAT * chosen.scale)  # Scaling comes first.

    x = np.stack([one(image) for image in images])
    seen = np.stack([one(image) for image in training])
    return x - {"none": 0, "channel": seen.mean((0, 1, 2)), "pixel": seen.mean(0)}[chosen.mean]


@settings(max_examples=40, deadline=None)
@given(chosen, images)
def test_preprocessing_equals_that_of_numpy_in_float64(chosen, images):
    fitted = fit(chosen, images)
    x = apply(fitted, tf.constant(images))
    assert x.dtype == tf.float32
    expected = reference(chosen, images, images)
    np.testing.assert_allclose(x, expected, rtol=2e-5, atol=2e-5 * max(1, abs(expected).max()))


def test_an_offset_centres_pixels_around_zero():
    ends = tf.constant(np.array([[[[0], [255]]]], np.uint8))
    seen = apply(Fitted(Preprocess(scale=2 / 255, offset=-1.0), None), ends)
    np.testing.assert_allclose(seen[0, 0, :, 0], [-1, 1], atol=1e-6)


def test_the_mean_is_that_of_the_images_it_was_fitted_to():
    random = np.random.default_rng(0)
    training, other = (random.integers(0, 256, (2500, 3, 4, 3), np.uint8) for _ in range(2))
    for mean in ("channel", "pixel"):
        chosen = Preprocess(contrast=0.67, mean=mean)
        fitted = fit(chosen, training)
        np.testing.assert_allclose(apply(fitted, tf.constant(other)), reference(chosen, other, training), atol=1e-5)
        x = apply(fitted, tf.constant(training)).numpy()
        assert abs(x.mean(axis=(0, 1, 2) if mean == "channel" else 0)).max() < 1e-6


def test_batches_are_fitted_like_the_whole():
    images = np.random.default_rng(0).integers(0, 256, (70, 5, 4, 3), np.uint8)
    chosen = Preprocess(contrast=1.0, mean="pixel")
    parts = fit(chosen, iter([images[:32], images[32:]]))
    np.testing.assert_allclose(parts.mean, fit(chosen, images).mean, atol=1e-7)


def test_contrast_gives_every_image_the_same_mean_and_deviation():
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), np.uint8)
    images[0] //= 50  # Faint images are normalized alike.
    x = apply(Fitted(Preprocess(contrast=0.67), None), tf.constant(images)).numpy()
    np.testing.assert_allclose(x.mean(axis=(1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(x.std(axis=(1, 2, 3)), 0.67, rtol=1e-4)


@pytest.mark.parametrize("level", [0, 1, 77, 255])
@pytest.mark.parametrize("scale", [1 / 255, 1 / 256, 1.0])
def test_an_image_of_one_colour_becomes_zero(level, scale):
    images = np.full((2, 224, 224, 3), level, np.uint8)
    x = apply(Fitted(Preprocess(scale=scale, contrast=1.0), None), tf.constant(images)).numpy()
    assert abs(x).max() < 0.02  # Rounding noise may remain.


def test_one_pixel_off_by_one_level_is_not_taken_for_a_flat_image():
    images = np.full((1, 32, 32, 3), 128, np.uint8)
    images[0, 0, 0, 0] = 129
    x = apply(Fitted(Preprocess(contrast=1.0), None), tf.constant(images)).numpy()
    assert x.std() == pytest.approx(1, rel=1e-3)


def test_eager_and_graph_give_the_same():
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)
    fitted = fit(Preprocess(contrast=0.67, mean="pixel"), images)
    signature = [tf.TensorSpec([None, 8, 8, 3], tf.uint8)]
    traced = tf.function(lambda batch: apply(fitted, batch), input_signature=signature)
    np.testing.assert_allclose(traced(tf.constant(images)), apply(fitted, tf.constant(images)), atol=1e-6)
    assert traced(tf.zeros([0, 8, 8, 3], tf.uint8)).shape == (0, 8, 8, 3)


def test_pixels_that_are_not_uint8_are_refused():
    fitted = Fitted(Preprocess(), None)
    with pytest.raises(TypeError, match="Received: dtype=float32"):
        apply(fitted, tf.zeros([1, 2, 2, 1]))


@pytest.mark.parametrize(("mean", "shape"), [("channel", (1, 4, 4, 1)), ("pixel", (1, 1, 4, 3))])
def test_a_mean_of_another_shape_does_not_spread(mean, shape):
    fitted = fit(Preprocess(mean=mean), np.ones((2, 4, 4, 3), np.uint8))
    with pytest.raises(ValueError, match="does not fit"):
        apply(fitted, tf.zeros(shape, tf.uint8))


def test_no_images_have_no_mean():
    with pytest.raises(ValueError, match="at least one image"):
        fit(Preprocess(mean="pixel"), np.zeros((0, 2, 2, 1), np.uint8))


@settings(max_examples=40, deadline=None)
@given(chosen)
def test_preprocessing_survives_a_round_trip_through_a_file(tmp_path_factory, chosen):
    fitted = fit(chosen, np.random.default_rng(0).integers(0, 256, (5, 3, 3, 3), np.uint8))
    path = tmp_path_factory.mktemp("kept") / "preprocess.npz"
    save(fitted, path)
    again = load(path)
    assert again.settings == fitted.settings
    assert (again.mean is None) == (fitted.mean is None)
    if fitted.mean is not None:
        np.testing.assert_array_equal(again.mean, fitted.mean)
        assert again.mean.dtype == np.float32


def test_a_damaged_file_is_reported_by_name(tmp_path):
    path = tmp_path / "preprocess.npz"
    with pytest.raises(UserError, match=r"preprocess\.npz is missing"):
        load(path)
    save(fit(Preprocess(mean="pixel"), np.ones((2, 4, 4, 3), np.uint8)), path)
    whole = path.read_bytes()
    for damage in (b"", whole[: len(whole) // 2], b"no archive"):
        path.write_bytes(damage)
        with pytest.raises(UserError, match=r"preprocess\.npz is damaged"):
            load(path)
    for settings_ in ('{"skale": 1}', '{"scale": -1}', "[1]", "{"):
        np.savez(path, settings=np.array(settings_))
        with pytest.raises(UserError, match=r"preprocess\.npz is damaged"):
            load(path)
    np.savez(path, settings=np.array(Preprocess(mean="pixel").model_dump_json()))
    with pytest.raises(UserError, match="its mean is missing"):
        load(path)


COLUMNS = (
    TableColumn(name="size", missing=True),
    TableColumn(name="city", categories=("Oslo", "Rome")),
    TableColumn(name="age"),
    TableColumn(name="empty", categories=()),
)


def table(count, seed=0):
    """Rows with gaps in the first three columns, and some unknown categories."""
    random = np.random.default_rng(seed)
    sizes = np.where(random.random(count) < 0.3, np.nan, random.normal(1e6, 1e3, count))
    return np.stack([sizes, random.integers(-1, 2, count), random.normal(size=count), -np.ones(count)], 1).astype("f4")


def encoded(rows, training):
    """The reference: numbers, indicators of missing ones, categories."""
    kept = training[:, [0, 2]].astype(float)
    found = (rows[:, [0, 2]] - np.nanmean(kept, 0)) / np.nanstd(kept, 0)
    return np.concatenate(
        [np.nan_to_num(np.clip(found, -LIMIT, LIMIT)), np.isnan(rows[:, :1]), rows[:, 1:2] == [0, 1]], 1
    )


def test_rows_are_encoded_by_the_moments_of_the_training_rows():
    training, rows = table(200), table(50, seed=1)
    rows[0] = [1e30, 5, -1e30, 0]
    fitted = fit(Preprocess(scale=1.0), training, COLUMNS, np.arange(200) % 3)
    found = apply(fitted, tf.constant(rows)).numpy()
    assert found.shape == (50, sum(column.inputs for column in COLUMNS)) == (50, 5)
    np.testing.assert_allclose(found, encoded(rows, training), atol=1e-3)
    assert np.isfinite(found).all()
    assert found[0].tolist() == [LIMIT, -LIMIT, 0, 0, 0]
    # Scale and mean follow.
    scaled = fit(Preprocess(scale=0.5, mean="pixel"), training, COLUMNS)
    expected = 0.5 * encoded(training, training)
    np.testing.assert_allclose(apply(scaled, tf.constant(training)), expected - expected.mean(0), atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(arrays(np.float32, (7, 3), elements=st.floats(width=32, allow_nan=True, allow_infinity=False)))
def test_no_number_becomes_infinite(rows):
    fitted = fit(Preprocess(scale=1.0), rows, [TableColumn(name=name, missing=True) for name in "abc"])
    found = apply(fitted, tf.constant(rows)).numpy()
    assert np.isfinite(found).all()
    assert abs(found).max() <= LIMIT


def test_targets_of_a_table_are_standardized_and_converted_back():
    targets = np.random.default_rng(0).normal(5e5, 2e4, (100, 1)).astype("f4")
    fitted = fit(Preprocess(scale=1.0), table(100), COLUMNS, targets)
    small = standardized(fitted, tf.constant(targets)).numpy()
    assert (small.mean(), small.std()) == (pytest.approx(0, abs=1e-3), pytest.approx(1, rel=1e-3))
    np.testing.assert_allclose(in_units(fitted, small), targets, rtol=1e-5)
    for other in (fit(Preprocess(), table(9)), fit(Preprocess(), table(9), COLUMNS, np.arange(9))):
        assert standardized(other, targets) is in_units(other, targets) is targets


def test_the_encoding_of_a_table_survives_a_round_trip_through_a_file(tmp_path):
    rows = table(30)
    fitted = fit(Preprocess(scale=1.0, mean="pixel"), rows, COLUMNS, rows[:, 2:3])
    save(fitted, tmp_path / "preprocess.npz")
    again = load(tmp_path / "preprocess.npz")
    np.testing.assert_array_equal(apply(again, tf.constant(rows)), apply(fitted, tf.constant(rows)))
    assert in_units(again, 1.5) == in_units(fitted, 1.5)


def test_inputs_that_are_constant_in_the_training_rows_are_always_0(tmp_path):
    columns = [
        TableColumn(name="sparse"),
        TableColumn(name="size"),
        # Subsets of the training rows may lack gaps and categories that others have.
        TableColumn(name="gap", missing=True),
        TableColumn(name="empty", missing=True),
        TableColumn(name="city", categories=("Oslo", "Rome")),
    ]
    training = np.array([[0, 4, 7, np.nan, 0], [0, 6, 7, np.nan, 0]], "f4")
    rows = np.array([[3, 8, np.nan, 5, 1], [np.nan, 5, 1e30, np.nan, -1]], "f4")
    fitted = fit(Preprocess(scale=1.0), training, columns)
    save(fitted, tmp_path / "preprocess.npz")
    # Four numbers, two indicators of missing ones, two categories.
    expected = [[0, 3, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]]
    signature = [tf.TensorSpec([None, 5])]
    for one in (fitted, load(tmp_path / "preprocess.npz")):
        traced = tf.function(partial(apply, one), input_signature=signature)
        assert apply(one, tf.constant(rows)).numpy().tolist() == traced(rows).numpy().tolist() == expected
        assert apply(one, tf.constant(training)).numpy()[:, 1].tolist() == [-1, 1]


def test_an_earlier_file_computes_what_it_did(tmp_path):
    path = tmp_path / "preprocess.npz"
    columns = [TableColumn(name="sparse"), TableColumn(name="size")]
    save(fit(Preprocess(scale=1.0), np.array([[0, 4], [0, 6]], "f4"), columns), path)
    with np.load(path) as stored:
        np.savez(path, **{name: array for name, array in stored.items() if name != "table_varying"})
    assert apply(load(path), tf.constant([[3.0, 8.0]])).numpy().tolist() == [[3, 3]]


def test_a_target_that_is_constant_in_the_training_rows_keeps_its_unit():
    fitted = fit(Preprocess(scale=1.0), table(9), COLUMNS, np.full((9, 1), 5.0, "f4"))
    assert standardized(fitted, tf.constant([[7.0]])).numpy().tolist() == [[2]]
    assert in_units(fitted, 2.0) == 7

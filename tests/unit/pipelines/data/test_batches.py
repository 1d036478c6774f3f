import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.core.config import Augment, Preprocess
from pipelines.core.errors import UserError
from pipelines.data.batches import balanced, evaluation, throughput, training
from pipelines.data.preprocess import Fitted, apply, fit
from pipelines.data.sources import Examples

CLASSES = 5
PLAIN = Fitted(Preprocess(scale=1.0), None)
MOVING = Augment(pad=2, mirror=True)
# Apart, because its many operations take seconds to trace.
RANDOM = Augment(rand_augment=1)
ALL = Augment(sharpness=0.5, pad=2, mirror=True, rotate=10, zoom=0.2, elastic=0.5, cutout=2, cutmix=1.0)


def numbered(count):
    """Returns images filled with the number of their example."""
    images = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None], (count, 4, 5, 1))
    return Examples(np.array(images), np.arange(count) % CLASSES)


def random(count):
    pixels = np.random.default_rng(0).integers(0, 256, (count, 6, 5, 3), np.uint8)
    return Examples(pixels, np.arange(count) % CLASSES)


def batches(examples, fitted=PLAIN, **changed):
    defaults = {"augment": Augment(), "batch_size": 8, "seed": 5, "steps": 20, "classes": CLASSES}
    return list(training(examples, fitted, **defaults | changed).as_numpy_iterator())


def same(some, others):
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


@settings(max_examples=4, deadline=None)
@given(
    first=st.integers(0, 30),
    batch_size=st.sampled_from([1, 7, 8, 50, 64]),
    seed=st.integers(0, 2**64),
    augment=st.sampled_from([MOVING, ALL]),
)
@example(first=11, batch_size=7, seed=2**64, augment=ALL)
@example(first=3, batch_size=8, seed=1, augment=RANDOM)
def test_a_batch_depends_on_seed_and_step_alone(first, batch_size, seed, augment):
    examples = random(50)
    fitted = fit(Preprocess(contrast=1.0, mean="pixel"), examples.images)
    chosen = {"augment": augment, "batch_size": batch_size, "seed": seed}
    whole = batches(examples, fitted, steps=30, **chosen)
    same(batches(examples, fitted, first_step=first, steps=30, **chosen), whole[first:])


@pytest.mark.parametrize("batch_size", [10, 8, 50, 60])
def test_every_example_appears_once_per_epoch(batch_size):
    made = batches(numbered(50), batch_size=batch_size, steps=600 // batch_size)
    assert {len(x) for x, _ in made} == {batch_size}  # Also where a batch crosses the end of an epoch.
    row = np.concatenate([x[:, 0, 0, 0] for x, _ in made])
    for epoch in range(len(row) // 50):
        assert sorted(row[epoch * 50 : epoch * 50 + 50]) == list(range(50))


def test_labels_stay_with_their_images():
    for x, y in batches(numbered(50), augment=Augment(mirror=True)):
        assert y.dtype == x.dtype == np.float32
        np.testing.assert_array_equal(y, np.eye(CLASSES)[x[:, 0, 0, 0].astype(int) % CLASSES])


def test_epochs_and_seeds_differ():
    made = [batches(numbered(48), steps=12, seed=seed) for seed in (0, 1)]
    epochs = [np.concatenate([x[:, 0, 0, 0] for x, _ in part]) for row in made for part in (row[:6], row[6:])]
    assert len({epoch.tobytes() for epoch in epochs}) == 4


def test_one_example_is_changed_differently_in_every_step():
    made = batches(random(1), augment=Augment(pad=3, mirror=True), batch_size=4, steps=4)
    assert len({image.tobytes() for x, _ in made for image in x}) > 12


def test_balanced_batches_have_as_many_of_each_class():
    labels = np.array([0] * 40 + [1] * 8 + [2] * 2)
    examples = Examples(random(50).images, labels)
    made = batches(examples, batch_size=6, steps=30, sampling="balanced")
    assert all(np.array_equal(y.sum(axis=0), [2, 2, 2, 0, 0]) for _, y in made)
    same(batches(examples, batch_size=6, first_step=11, steps=30, sampling="balanced"), made[11:])


def test_balanced_images_of_one_class_are_mixed_too():
    examples = Examples(random(50).images, np.arange(50) % 2)
    chosen = {"augment": Augment(mixup=1.0), "steps": 32, "classes": 2, "sampling": "balanced"}
    made = batches(examples, **chosen)
    targets = np.concatenate([y for _, y in made])
    # Half of the pairs are of one class.
    assert targets.max(axis=1).round(6).tolist().count(1.0) == pytest.approx(128, abs=40)
    assert targets.sum(axis=0).tolist() == pytest.approx([128, 128], abs=25)
    same(batches(examples, first_step=20, **chosen), made[20:])


@pytest.mark.parametrize(("hosts", "augment"), [(2, ALL), (4, ALL), (2, RANDOM)])
def test_the_shards_of_the_hosts_make_the_batch(hosts, augment):
    examples = random(50)
    chosen = {"augment": augment, "first_step": 3}
    shards = [batches(examples, shard=(host, hosts), **chosen) for host in range(hosts)]
    joined = [tuple(map(np.concatenate, zip(*parts, strict=True))) for parts in zip(*shards, strict=True)]
    same(joined, batches(examples, **chosen))


def test_a_batch_that_cannot_be_divided_is_refused():
    with pytest.raises(UserError, match="batch of 8 cannot be divided among 3 hosts"):
        batches(numbered(10), shard=(0, 3))


def test_padding_is_the_mean():
    """Augmentation follows preprocessing, so that padding is 0, the mean."""
    examples = Examples(np.full((10, 4, 4, 1), 200, np.uint8), np.zeros(10, int))
    made = batches(examples, fit(Preprocess(mean="channel"), examples.images), augment=Augment(pad=3), steps=5)
    assert all(abs(x).max() < 1e-6 for x, _ in made)


def test_without_augmentation_images_are_only_preprocessed():
    examples = random(16)
    fitted = fit(Preprocess(contrast=0.67, mean="pixel"), examples.images)
    made = batches(examples, fitted, batch_size=16, steps=1)
    expected = apply(fitted, tf.constant(examples.images)).numpy()
    found = sorted(made[0][0].tolist())
    np.testing.assert_allclose(found, sorted(expected.tolist()), atol=1e-6)


def test_the_number_of_batches_is_known_and_shapes_are_static():
    made = training(random(50), PLAIN, augment=MOVING, batch_size=8, seed=0, first_step=5, steps=20, classes=CLASSES)
    assert int(made.cardinality()) == 15
    assert [tuple(spec.shape) for spec in made.element_spec] == [(8, 6, 5, 3), (8, CLASSES)]
    assert int(evaluation(random(50), PLAIN, batch_size=8, classes=CLASSES).cardinality()) == 7


@pytest.mark.parametrize("augment", [ALL, RANDOM])
def test_smaller_images_are_the_augmented_ones_shrunk(augment):
    examples, chosen = random(50), {"augment": augment, "first_step": 3}
    whole = batches(examples, **chosen)
    small = batches(examples, size=(4, 3), **chosen)
    assert all(x.shape == (8, 4, 3, 3) for x, _ in small)
    for (x, y), (full, targets) in zip(small, whole, strict=True):
        np.testing.assert_array_equal(y, targets)
        np.testing.assert_array_equal(x, tf.image.resize(full, (4, 3), antialias=True))
    same(batches(examples, size=(4, 3), augment=augment, first_step=11), small[8:])
    shards = [batches(examples, size=(4, 3), shard=(host, 2), **chosen) for host in range(2)]
    same([tuple(map(np.concatenate, zip(*parts, strict=True))) for parts in zip(*shards, strict=True)], small)


@pytest.mark.parametrize("count", [1, 8, 21])
def test_evaluation_takes_every_example_in_order(count):
    examples = random(count)
    fitted = fit(Preprocess(contrast=0.67, mean="channel"), examples.images)
    made = list(evaluation(examples, fitted, batch_size=8, classes=CLASSES).as_numpy_iterator())
    assert [len(x) for x, _ in made] == [8] * (count // 8) + [count % 8] * bool(count % 8)
    np.testing.assert_allclose(
        np.concatenate([x for x, _ in made]), apply(fitted, tf.constant(examples.images)), atol=1e-6
    )
    np.testing.assert_array_equal(np.concatenate([y for _, y in made]), np.eye(CLASSES)[examples.labels])


@pytest.mark.parametrize("make", ["training", "evaluation"])
def test_pipelines_are_not_autotuned_as_closing_would_stall(make):
    dataset = (
        training(numbered(20), PLAIN, augment=MOVING, batch_size=8, seed=5, steps=4, classes=CLASSES)
        if make == "training"
        else evaluation(numbered(20), PLAIN, batch_size=8, classes=CLASSES)
    )
    assert dataset.options().autotune.enabled is False


def empty_batches(count):
    return tf.data.Dataset.range(count).map(lambda _: (tf.zeros([5, 2, 2, 1]), tf.zeros([5, 3])))


def test_images_are_counted_over_the_time(monkeypatch):
    clock = iter(float(tick) for tick in range(100))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    # The clock is read once before the measurement, once for its end, before every batch, and once after: in the
    # 14 s between, 11 batches of 5 images were taken.
    assert throughput(empty_batches(1000), seconds=12) == pytest.approx(11 * 5 / 14)


def test_too_few_batches_are_an_error():
    with pytest.raises(ValueError, match="ran out"):
        throughput(empty_batches(3))


def test_balanced_classes_weigh_the_same_in_all():
    labels = np.array([0] * 30 + [1] * 10 + [3] * 8)
    weights = balanced(labels, 5)
    np.testing.assert_allclose(np.bincount(labels, weights[labels], 5), [16, 16, 0, 16, 0])
    assert weights[labels].mean() == pytest.approx(1)


def test_the_weight_of_an_example_is_that_of_its_class_also_when_mixed():
    weights = np.arange(1.0, CLASSES + 1)
    for x, y, weight in batches(numbered(50), class_weights=weights):
        np.testing.assert_array_equal(weight, weights[x[:, 0, 0, 0].astype(int) % CLASSES])
        np.testing.assert_array_equal(weight, y @ weights)
    for _, y, weight in batches(numbered(50), class_weights=weights, augment=Augment(mixup=1.0)):
        np.testing.assert_allclose(weight, y @ weights, rtol=1e-6)

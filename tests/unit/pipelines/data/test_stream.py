import numpy as np
import pytest

from pipelines.core.config import Augment, Preprocess
from pipelines.data import stream
from pipelines.data.batches import evaluation, training
from pipelines.data.preprocess import Fitted, fit
from pipelines.data.sources import load
from pipelines.data.stream import Stream

PLAIN = Fitted(Preprocess(scale=1.0), None)


@pytest.fixture
def large(tiny, monkeypatch):
    """60 training examples, 12 of them held out, in blocks of 20."""
    monkeypatch.setattr(stream, "BLOCK", 20)
    return tiny({"train": 60, "test": 7})


def batches(examples, **changed):
    settings = {"augment": Augment(pad=1, mirror=True), "batch_size": 8, "seed": 5, "steps": 20, "classes": 3}
    return list(training(examples, PLAIN, **settings | changed).as_numpy_iterator())


def same(some, others):
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_stream_holds_the_same_examples_as_memory(large, split):
    memory, disk = load(large, split, validation=12), load(large, split, validation=12, memory=10)
    assert isinstance(disk, Stream)
    assert len(disk) == len(memory) == len(disk.labels)
    images = np.concatenate(list(disk.images))
    both = [sorted(image.tobytes() for image in part) for part in (images, memory.images)]
    assert both[0] == both[1]
    np.testing.assert_array_equal(images.reshape(len(images), -1)[:, 1] % 3, disk.labels)
    chosen = Preprocess(mean="pixel")
    np.testing.assert_allclose(fit(chosen, disk.images).mean, fit(chosen, memory.images).mean, atol=1e-6)


def test_a_start_at_a_later_step_gives_the_same_batches(large):
    examples = load(large, "train", validation=12, memory=10)
    whole = batches(examples)
    for first in (1, 6, 7, 19, 20):
        same(batches(examples, first_step=first), whole[first:])


def test_each_epoch_has_every_example_once_in_its_own_order(large):
    examples = load(large, "train", validation=12, memory=10)
    made = batches(examples, augment=Augment(), steps=12)
    epochs = [np.concatenate([x for x, _ in made[at : at + 6]]).reshape(48, -1)[:, 1] for at in (0, 6)]
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert len(set(epochs[0])) == 48
    assert not np.array_equal(*epochs)
    with pytest.raises(AssertionError):
        same(made, batches(examples, augment=Augment(), steps=12, seed=6))


def test_labels_stay_with_their_images(large):
    for x, y in batches(load(large, "train", validation=12, memory=10), augment=Augment()):
        np.testing.assert_array_equal(y.argmax(1), x.reshape(8, -1)[:, 1] % 3)


def test_the_shards_of_the_hosts_make_the_batch(large):
    examples = load(large, "train", validation=12, memory=10)
    hosts = [batches(examples, first_step=3, shard=(host, 2)) for host in range(2)]
    same(
        [tuple(map(np.concatenate, zip(*parts, strict=True))) for parts in zip(*hosts, strict=True)],
        batches(examples, first_step=3),
    )


def test_the_number_of_batches_is_known(large):
    examples = load(large, "train", validation=12, memory=10)
    made = training(examples, PLAIN, augment=Augment(), batch_size=8, seed=0, first_step=2, steps=20, classes=3)
    assert int(made.cardinality()) == 18
    assert int(evaluation(examples, PLAIN, batch_size=10, classes=3).cardinality()) == 5


def test_evaluation_takes_every_example_in_order(large):
    examples = load(large, "test", memory=10)
    made = list(evaluation(examples, PLAIN, batch_size=3, classes=3).as_numpy_iterator())
    assert [len(x) for x, _ in made] == [3, 3, 1]
    np.testing.assert_array_equal(np.concatenate([x for x, _ in made]), np.concatenate(list(examples.images)))
    np.testing.assert_array_equal(np.concatenate([y for _, y in made]).argmax(1), examples.labels)

import dataclasses
import io
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds
from rich.console import Console

from pipelines.core.config import Config, ModelConfig, Subset
from pipelines.core.errors import UserError
from pipelines.core.run import DataRecord, TableColumn
from pipelines.data.own.prepare import resolved
from pipelines.data.sources import COLUMNS, Examples, TableForm, describe, load
from pipelines.inference import inputs

SPLITS = ["train", "validation", "test"]


def numbers(examples):
    """Returns the split and number of examples, which `tiny` stores in the first two pixels."""
    return {tuple(pixels) for pixels in examples.images.reshape(len(examples), -1)[:, :2].tolist()}


def batches(examples):
    """Returns the images, in one array or in several."""
    return [examples.images] if isinstance(examples, Examples) else list(examples.images)


def test_validation_is_taken_from_train_and_from_nothing_else(tiny):
    data = tiny({"train": 60, "test": 30})
    train, validation, test = (load(data, name, validation=12) for name in SPLITS)
    assert len(train) == 48
    assert numbers(train) | numbers(validation) == {(0, number) for number in range(60)}
    assert not numbers(train) & numbers(validation)
    assert numbers(test) == {(1, number) for number in range(30)}
    assert np.bincount(validation.labels).tolist() == [4, 4, 4]
    assert describe(data, validation=12).counts == {"train": 48, "validation": 12, "test": 30}


@pytest.mark.parametrize("own", [True, False])
def test_the_test_split_is_never_used_for_validation(tiny, own):
    data = tiny({"train": 40, "test": 20} | ({"validation": 10} if own else {}))
    seen = numbers(load(data, "train", validation=7)) | numbers(load(data, "validation", validation=7))
    assert not seen & numbers(load(data, "test", validation=7))
    # Training and validation do not read the files of the test split.
    for file in Path(data).glob("*-test.*"):
        file.unlink()
    copy = Path(data).parent / "2.1.1"
    shutil.copytree(data, copy)
    again = numbers(load(str(copy), "train", validation=7)) | numbers(load(str(copy), "validation", validation=7))
    assert again == seen


def test_an_existing_validation_split_is_used_as_it_is(tiny):
    data = tiny({"train": 40, "validation": 10, "test": 5})
    assert describe(data, validation=30).counts == {"train": 40, "validation": 10, "test": 5}
    assert numbers(load(data, "validation", validation=30)) == {(1, number) for number in range(10)}
    assert numbers(load(data, "train", validation=30)) == {(0, number) for number in range(40)}


def test_without_validation_everything_is_train(tiny):
    data = tiny({"train": 20, "test": 5})
    assert len(load(data, "train")) == 20
    with pytest.raises(UserError, match=r"no validation examples.*--validation N"):
        load(data, "validation")


def test_labels_stay_with_their_images(tiny):
    data = tiny({"train": 60, "test": 5})
    for name in ("train", "validation"):
        examples = load(data, name, validation=20)
        assert examples.labels.dtype == np.int64
        np.testing.assert_array_equal(examples.images.reshape(len(examples), -1)[:, 1] % 3, examples.labels)


def test_the_same_examples_on_every_call(tiny):
    data = tiny({"train": 60, "test": 5})
    first = load(data, "validation", validation=20).images.copy()
    load(data, "test")
    load(data, "train")
    np.testing.assert_array_equal(load(data, "validation", validation=20).images, first)


def test_shared_arrays_cannot_be_written_to(tiny):
    data = tiny({"train": 60, "test": 5})
    for validation in (0, 20):
        examples = load(data, "train", validation=validation)
        assert isinstance(examples, Examples)
        with pytest.raises(ValueError, match="read-only"):
            examples.images[0] = 0


def test_a_subset_is_drawn_from_the_remaining_examples_and_the_test_split(tiny):
    data, part = tiny({"train": 60, "test": 30}), Subset(train=9, test=6)
    assert describe(data, validation=12, part=part).counts == {"train": 9, "validation": 12, "test": 6}
    train, validation, test = (load(data, name, validation=12, part=part) for name in SPLITS)
    assert [len(examples) for examples in (train, validation, test)] == [9, 12, 6]
    assert np.bincount(train.labels).tolist() == [3, 3, 3]
    assert numbers(train) < numbers(load(data, "train", validation=12))
    assert numbers(test) < numbers(load(data, "test"))
    np.testing.assert_array_equal(train.images.reshape(9, -1)[:, 1] % 3, train.labels)
    with pytest.raises(ValueError, match="read-only"):
        train.images[0] = 0


def test_a_smaller_subset_is_part_of_a_larger_one(tiny):
    data = tiny({"train": 60, "test": 5})
    small, large = (numbers(load(data, "train", part=Subset(train=count))) for count in (9, 30))
    assert small < large < {(0, number) for number in range(60)}


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_stream_holds_the_same_subset_as_memory(tiny, split):
    data, part = tiny({"train": 60, "test": 30}), Subset(train=9, test=6)
    memory, disk = (load(data, split, validation=12, part=part, memory=bytes_) for bytes_ in (2**20, 10))
    assert len(disk) == len(memory)
    images = np.concatenate(list(disk.images))
    assert {tuple(pixels) for pixels in images.reshape(len(images), -1)[:, :2].tolist()} == numbers(memory)


@pytest.mark.parametrize("part", [Subset(train=49), Subset(test=6)])
def test_a_subset_is_no_larger_than_its_source(tiny, part):
    data = tiny({"train": 60, "test": 5})
    assert describe(data, validation=12, part=Subset(train=48, test=5)).counts["train"] == 48
    with pytest.raises(UserError, match=r"subset\.(train must be at most 48|test must be at most 5), the .*Received:"):
        describe(data, validation=12, part=part)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("memory", [2**20, 10], ids=["memory", "disk"])
@pytest.mark.parametrize("seed", [0, 7])
def test_a_seed_draws_from_the_order_in_which_the_data_were_published(tiny, split, memory, seed):
    sizes = {"train": 60, "test": 30}
    data, part = tiny(sizes, name="mnist"), Subset(train=9, test=6, seed=seed)
    generator = np.random.default_rng(seed)
    expected = {name: generator.permutation(size)[: getattr(part, name)] for name, size in sizes.items()}
    examples = load(data, split, part=part, memory=memory)
    pixels = np.concatenate([images.reshape(len(images), -1)[:, :2] for images in batches(examples)])
    assert len(examples) == len(pixels)
    # The first two pixels are the numbers of the split and of the example.
    assert {(split == "test", number) for number in expected[split]} == set(map(tuple, pixels.tolist()))
    assert sorted(examples.labels.tolist()) == sorted((expected[split] % 3).tolist())


def test_only_data_with_a_published_order_are_drawn_by_a_seed(tiny):
    data = tiny({"train": 60, "test": 5})
    with pytest.raises(UserError, match=r"known for mnist only.*Received: 'tiny', subset\.seed=0"):
        describe(data, part=Subset(train=9, seed=0))


def test_missing_splits_are_reported(tiny):
    with pytest.raises(UserError, match="no test examples"):
        load(tiny({"train": 6}), "test")


def test_missing_training_examples_are_an_error(tiny):
    with pytest.raises(UserError, match=r"no split 'train'\. It has: test"):
        describe(tiny({"test": 6}))


def test_validation_leaves_something_to_train_on(tiny):
    data = tiny({"train": 20, "test": 5})
    for too_many in (20, 21):
        with pytest.raises(UserError, match=f"must be less than 20, .*validation={too_many}"):
            describe(data, validation=too_many)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"image": "none"}, r"must have the features image \(Image\).*It has: label \(ClassLabel\)"),
        ({"label": "none"}, r"and label \(ClassLabel\).*\. It has: image \(Image\)"),
        ({"label": tfds.features.Scalar(np.int64)}, r"label \(Scalar\)"),
        ({"image": tfds.features.Image(shape=(None, None, 1))}, r"have different sizes: \(None, None, 1\)"),
        (
            {"shape": (4, 5, 2)},
            r"have 2 channels\. Expected 1 .* or 3 .*highway data prepare tiny --image-size 4 5`",
        ),
    ],
)
def test_only_images_of_one_size_with_labels_are_accepted(tiny, features, message):
    data = tiny({"train": 6, "test": 5}, **features)
    with pytest.raises(UserError, match=message):
        describe(data)


def test_images_with_an_alpha_channel_are_prepared_without_it(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = tiny({"train": 30}, shape=(4, 5, 4))
    config = Config(recipe="toy", model=ModelConfig(preset="mnist_dense_50"), data=data, image_size=(4, 5))
    assert describe(resolved(config, None, Console(file=io.StringIO())).data).shape == (4, 5, 3)


def vector(*shape, dtype=np.float32):
    return tfds.features.Tensor(shape=shape, dtype=dtype)


@pytest.mark.parametrize(
    "vectors",
    [
        {"features": vector(3)},
        {"features": vector(3), "target": vector(2)},
        {"features": vector(3, 1), "target": vector(1)},
        {"features": vector(3, dtype=np.float64), "target": vector(1)},
    ],
)
def test_only_float32_vectors_with_one_target_are_accepted(tiny, vectors):
    with pytest.raises(UserError, match=r"or for regression features \(Tensor, float32 \[n\]\) and target"):
        describe(tiny({"train": 6}, image="none", label="none", vectors=vectors))


def test_vectors_with_targets_make_a_regression(tiny):
    data = tiny({"train": 6}, image="none", label="none", vectors={"features": vector(3), "target": vector(1)})
    assert (describe(data).shape, describe(data).labels) == ((3,), ())
    assert load(data, "train", memory=0).images.shape == (6, 3)
    with pytest.raises(UserError, match=r"has no validation examples\.$"):
        load(data, "validation")
    with pytest.raises(UserError, match=r"no split 'validation'.*validation=2"):
        describe(data, validation=2)
    with pytest.raises(UserError, match=r"only labelled images are drawn at random.*subset\.train=2"):
        describe(data, part=Subset(train=2))


def test_vectors_with_labels_make_a_classification(tiny):
    data = tiny({"train": 30, "test": 6}, image="none", vectors={"features": vector(3)})
    info = describe(data, validation=6)
    assert (info.shape, info.inputs, len(info.labels)) == ((3,), (3,), 3)
    assert info.counts == {"train": 24, "validation": 6, "test": 6}
    held_out = load(data, "validation", validation=6, memory=0)
    assert held_out.images.shape == (6, 3)
    assert np.bincount(held_out.labels).tolist() == [2, 2, 2]
    assert len(load(data, "train", part=Subset(train=9))) == 9


def test_the_columns_of_a_table_are_next_to_its_files(tiny):
    data = tiny({"train": 6}, image="none", label="none", vectors={"features": vector(2), "target": vector(1)})
    columns = (TableColumn(name="age", missing=True), TableColumn(name="city", categories=("Oslo", "Rome")))
    form = TableForm(target="price", columns=columns)
    (Path(data) / COLUMNS).write_text(form.model_dump_json())
    info = describe(data)
    assert (info.columns, info.target, info.shape, info.inputs) == (columns, "price", (2,), (4,))
    record = DataRecord(**dataclasses.asdict(info))
    assert DataRecord.model_validate_json(record.model_dump_json()) == record
    assert record.inputs == (4,)
    (Path(data) / COLUMNS).write_text("{")
    with pytest.raises(UserError, match=r"columns\.json is damaged"):
        describe(data)


def test_records_of_other_data_have_no_fields_of_tables(tiny):
    info = describe(tiny({"train": 6}))
    assert set(DataRecord(**dataclasses.asdict(info)).model_dump()) == {"name", "version", "shape", "labels", "counts"}


def test_images_of_another_type_are_refused(tiny):
    wide = tfds.features.Image(shape=(4, 4, 1), dtype=np.uint16)
    with pytest.raises(UserError, match="dtype=uint16"):
        describe(tiny({"train": 6}, image=wide, dtype=np.uint16))


def damaged(digits, tmp_path, name, contents):
    """Copies mnist_5k, with the content of one file changed."""
    root = tmp_path / "sets"
    shutil.copytree(digits, root)
    file = next((root / "mnist_5k" / "1.0.0").glob(name))
    if contents is None:
        file.unlink()
    else:
        file.write_bytes(contents(file.read_bytes()))
    return root


@pytest.mark.parametrize(
    "contents",
    [
        None,
        lambda whole: b"",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
    ],
    ids=["missing", "empty", "truncated", "one bit"],
)
def test_damaged_examples_are_reported_with_their_folder(digits, tmp_path, contents):
    root = damaged(digits, tmp_path, "*train*", contents)
    message = rf"prepared data in {root}.* cannot be read"
    with pytest.raises(UserError, match=message):
        load("mnist_5k", "train", root)
    streamed = load("mnist_5k", "train", root, memory=0)
    with pytest.raises(UserError, match=message):
        list(streamed.images)
    with pytest.raises(UserError, match=message):
        _ = streamed.labels
    assert len(load("mnist_5k", "test", root)) == 500


@pytest.mark.parametrize(
    "contents",
    [b"", b"{", b"{}", b"[1]", b"\xff\xfe\x00"],
    ids=["empty", "cut", "without content", "other content", "bytes"],
)
@pytest.mark.parametrize("by_name", [True, False])
def test_damaged_information_is_reported_with_its_folder(digits, tmp_path, contents, by_name):
    root = damaged(digits, tmp_path, "dataset_info.json", lambda whole: contents)
    data = "mnist_5k" if by_name else str(root / "mnist_5k" / "1.0.0")
    with pytest.raises(UserError, match=rf"prepared data in {root}.* cannot be read"):
        describe(data, root)


def test_information_without_splits_is_reported(digits, tmp_path):
    poor = b'{"name": "mnist_5k", "version": "1.0.0", "fileFormat": "tfrecord", "moduleName": "x"}'
    root = damaged(digits, tmp_path, "dataset_info.json", lambda whole: poor)
    with pytest.raises(UserError, match="no split 'train'"):
        describe("mnist_5k", root)


def test_vectors_are_no_images_to_classify(tiny):
    data = tiny({"train": 30, "test": 6}, image="none", vectors={"features": vector(3)})
    with pytest.raises(UserError, match=r"has no images to classify\. Name another one"):
        inputs.sources([f"tfds:{data}/test"], None)

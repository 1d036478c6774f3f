import errno
import io
import json
import os
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image
from rich.console import Console

from pipelines.core.config import Config, ModelConfig
from pipelines.core.errors import UserError
from pipelines.data import sources
from pipelines.data.images import conversion
from pipelines.data.own import arrow, new_rows
from pipelines.data.own.prepare import SOURCE, is_own, prepare, prepare_for, read, resolved
from pipelines.data.roots import INFO
from serving import image_files
from tests import houses, shapes
from tests.unit.pipelines.data.own.small_tables import with_x


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


def config(data, **fields):
    return Config(recipe="toy", model=ModelConfig(preset="mnist_dense_50"), data=str(data), **fields)


def test_what_a_killed_process_has_prepared_is_removed(tmp_path, console):
    given = config(shapes.write(tmp_path / "shapes", 8), image_size=(8,))
    folder = Path(resolved(given, None, console).data)
    left = folder.with_name(".preparing-a")
    folder.rename(left)
    (left / "lock").write_text(socket.gethostname())
    assert Path(resolved(given, None, console).data) == folder
    assert [*folder.parent.iterdir()] == [folder]


@pytest.mark.parametrize("fit", conversion.FITS)
def test_prepared_images_are_what_the_endpoint_shows_the_net(tmp_path, console, fit):
    folder = shapes.write(tmp_path / "shapes", 8)
    prepared = resolved(config(folder, image_size=(16, 24), image_fit=fit), None, console).data
    info = sources.describe(prepared)
    assert (info.name, info.shape, info.labels) == ("shapes", (16, 24, 3), shapes.CLASSES)
    assert sum(info.counts.values()) == 24
    assert all(info.counts.values())
    convert = conversion.converter(conversion.kind_of(info.name, fit), info.shape)
    expected = {
        (label, convert(image_files.read(path))["image"].numpy().tobytes())
        for label in shapes.CLASSES
        for path in (folder / label).iterdir()
    }
    found = set()
    for split in ("train", "validation", "test"):
        examples = sources.load(prepared, split)
        found |= {
            (info.labels[label], image.tobytes()) for image, label in zip(examples.images, examples.labels, strict=True)
        }
    assert found == expected
    said = console.file.getvalue()
    assert "shapes: " in said
    assert "images of 3 classes, prepared as 16 x 24 x 3" in said


@pytest.mark.parametrize(
    ("splits", "counts"),
    [
        (["train", "val"], {"train": 12, "validation": 0, "test": 0}),
        (["val"], {"train": 6, "validation": 0, "test": 0}),
        (["train", "val", "test"], {"train": 6, "validation": 6, "test": 6}),
    ],
    ids=lambda found: "-".join(found) if isinstance(found, list) else "",
)
def test_images_for_a_trained_net_are_one_split_unless_there_is_a_test_split(tmp_path, console, splits, counts):
    for number, split in enumerate(splits):
        shapes.write(tmp_path / "newer" / split, 2, start=2 * number)
    prepared = prepare_for((8, 8, 3), "natural", str(tmp_path / "newer"), config("shapes"), console)
    assert sources.describe(str(prepared)).counts == counts


def test_images_for_a_trained_net_need_no_groups(tmp_path, console):
    newer = shapes.write(tmp_path / "newer", 2)
    prepared = prepare_for((8, 8, 3), "natural", str(newer), config("shapes", group="patient"), console)
    assert sources.describe(str(prepared)).counts["train"] == 6


def test_files_that_are_no_images_are_mentioned(tmp_path, console):
    folder = shapes.write(tmp_path / "shapes", 4)
    (folder / "circle" / "0.svg").touch()
    resolved(config(folder), None, console)
    prepare_for((8, 8, 3), "natural", str(folder), config("shapes"), console)
    said = console.file.getvalue()
    assert "note: files that are no images: 1 .svg.\n" in said
    assert "left out: files that are no images: 1 .svg.\n" in said


def test_unchanged_data_are_prepared_once_and_changed_data_again(tmp_path, console):
    folder = shapes.write(tmp_path / "shapes", 4)
    first = resolved(config(folder), None, console).data
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert resolved(config(folder), None, console).data == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*") if path.is_file()} == before
    shapes.write(folder, 1, start=4)
    assert resolved(config(folder), None, console).data != first
    assert resolved(config(folder, image_size=(20,)), None, console).data != first
    assert json.loads((Path(first) / SOURCE).read_text())["source"] == str(folder)


def test_data_of_which_no_image_can_be_read_are_refused(tmp_path, console):
    for label in "ab":
        (tmp_path / "all" / label).mkdir(parents=True)
        (tmp_path / "all" / label / "0.png").write_bytes(b"?")
    with pytest.raises(UserError, match=r"none of the 2 images of .*all can be read\. The first: a/0\.png is not"):
        read(str(tmp_path / "all"), None, console)


def test_what_is_gone_from_the_cache_can_be_prepared_again(tmp_path, console):
    folder = shapes.write(tmp_path / "shapes", 4)
    prepared = resolved(config(folder), None, console).data
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(UserError, match=r"no longer in the cache.*--image-size or --target: `highway data"):
        sources.describe(prepared)
    assert resolved(config(folder), None, console).data == prepared
    assert sum(sources.describe(prepared).counts.values()) == 12


def test_what_is_left_of_prepared_data_is_replaced(tmp_path, console):
    folder = shapes.write(tmp_path / "shapes", 4)
    prepared = Path(resolved(config(folder), None, console).data)
    (prepared / INFO).unlink()
    assert resolved(config(folder), None, console).data == str(prepared)
    assert sum(sources.describe(str(prepared)).counts.values()) == 12
    assert [*prepared.parent.iterdir()] == [prepared]


@pytest.mark.parametrize(("content", "why"), [(None, "No such file or directory"), (b"?", "is not an image")])
def test_images_that_change_meanwhile_are_no_fault_of_the_cache(tmp_path, console, content, why):
    folder = shapes.write(tmp_path / "shapes", 4)
    own = read(str(folder), None, console)
    (folder / "circle" / "000.png").unlink()
    if content:
        (folder / "circle" / "000.png").write_bytes(content)
    with pytest.raises(UserError, match=rf"shapes has changed since the command began: circle/000\.png .*{why}"):
        prepare(own, (8, 8), console)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_grey_images_stay_grey(tmp_path, console):
    for number in range(4):
        for label in "ab":
            (tmp_path / "grey" / label).mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(number + 9 * (label == "a")).integers(0, 256, (9, 9), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "grey" / label / f"{number}.png")
    assert sources.describe(resolved(config(tmp_path / "grey"), None, console).data).shape == (32, 32, 1)


def test_notes_are_printed_and_damaged_images_skipped_on_demand(tmp_path, console):
    folder = shapes.write(tmp_path / "shapes", 4)
    (folder / "circle" / "cut.png").write_bytes(b"?")
    with pytest.raises(UserError, match=r"(?s)1 of 13 images cannot be read:\n  circle/cut\.png .*--skip-damaged"):
        resolved(config(folder), None, console)
    assert not (tmp_path / "cache").exists()
    assert sum(sources.describe(resolved(config(folder, skip_damaged=True), None, console).data).counts.values()) == 12
    assert "note: damaged images, which are left out: 1" in console.file.getvalue()


@pytest.mark.parametrize(
    ("name", "expected"), [("mnist", "own_mnist"), ("2024 Q1", "own_2024_q1"), ("Ähre-Korn", "hre_korn")]
)
def test_names_become_those_of_data_sets(tmp_path, console, name, expected):
    data = read(str(shapes.write(tmp_path / name, 4)), None, console)
    assert prepare(data, (8, 8), console).parent.name == expected


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, console, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pipelines.data.own.prepare._examples", full)
    with pytest.raises(UserError, match=r"cannot be prepared in .*No space left"):
        resolved(config(shapes.write(tmp_path / "shapes", 4)), None, console)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_folder_may_be_named_without_a_slash_unless_a_data_set_is_called_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("shapes", "mnist"):
        (tmp_path / name).mkdir()
    assert is_own("shapes")
    assert is_own("./mnist")
    assert not is_own("mnist")


def test_prepared_sets_and_names_are_left_alone(tmp_path, console):
    prepared = resolved(config(shapes.write(tmp_path / "shapes", 4)), None, console).data
    for name in ("mnist_5k", "cifar10/plain:1.0.0", prepared, str(tmp_path / "nothing")):
        assert not is_own(name)
    assert resolved(config(prepared), None, console).data == prepared
    # The folder of all versions is no folder of classes.
    assert not is_own(str(Path(prepared).parent))
    saved = tmp_path / "saved"
    saved.mkdir()
    for name in (INFO, arrow.STATE):
        (saved / name).touch()
    assert is_own(str(saved))


def test_classes_and_names_are_read_back_as_they_were_written(tmp_path, console):
    for number in range(4):
        for label in (b"caf\xe9", b"tea "):
            folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/drinks/" + label))
            folder.mkdir(parents=True, exist_ok=True)
            Image.new("L", (9, 9), number).save(os.fsencode(folder) + b"/\xe9%d.png" % number)
    prepared = resolved(config(tmp_path / "drinks"), None, console).data
    assert sources.describe(prepared).labels == ("caf\\xe9", "tea")


def test_classes_of_tables_are_read_back_as_they_were_written(console, written):
    path = written(with_x(y=["a\nb", "a b", " c "] * 20), ".parquet")
    info = sources.describe(resolved(config(path), None, console).data)
    assert info.labels == ("a b", "c")
    found = new_rows.read(path, info.columns, "y", info.labels)
    assert (found.truth.tolist(), found.warnings) == ([0, 0, 1] * 20, ())
    path = written(with_x(tags=[["a\nb"], ["c ", "a b"], []] * 20), ".parquet")
    assert sources.describe(resolved(config(path, target="tags"), None, console).data).labels == ("a b", "c")


def test_published_images_of_different_sizes_are_prepared_too(tmp_path, console):
    features = tfds.features.FeaturesDict(
        {"image": tfds.features.Image(shape=(None, None, 3)), "label": tfds.features.ClassLabel(names=shapes.CLASSES)}
    )
    examples = [
        (f"{label} {seed}", {"image": np.asarray(shapes.drawn(label, seed)), "label": label})
        for label in shapes.CLASSES
        for seed in range(8)
    ]
    builder = tfds.dataset_builders.AdhocBuilder(
        name="varied", version="1.0.0", features=features, split_datasets={"train": examples}, data_dir=tmp_path
    )
    builder.download_and_prepare()
    folder = str(builder.data_dir)
    with pytest.raises(UserError, match=r"have different sizes.*highway data prepare varied --image-size 64"):
        sources.describe(folder)
    prepared = resolved(config(folder, image_size=(12,)), None, console).data
    info = sources.describe(prepared)
    assert (info.name, info.shape, info.labels) == ("varied", (12, 12, 3), shapes.CLASSES)
    assert sum(info.counts.values()) == 24
    assert info.counts["test"]


def test_groups_keep_together_in_the_splits_of_the_data(tmp_path, console):
    lines = ["path,label,split,patient"]
    for number in range(48):
        Image.new("L", (9, 9), number).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{'ab'[number % 2]},{'test' if number < 8 else 'train'},{number // 4}")
    table = tmp_path / "table.csv"
    table.write_text("\n".join(lines) + "\n")
    data = config(table, group="patient", validation=8)
    prepared = resolved(data, None, console)
    assert prepared.validation == 8
    validation = {int(image[0, 0, 0]) for image in sources.load(prepared.data, "validation").images}
    assert validation
    assert validation == {4 * (number // 4) + one for number in validation for one in range(4)}
    assert sources.describe(resolved(config(table), None, console).data).counts["validation"] == 0
    table.write_text("\n".join([*lines[:-1], lines[-1].replace("train", "test")]) + "\n")
    with pytest.raises(UserError, match=r"--group keeps a group in one split, and the data name two splits for 1: 11"):
        resolved(data, None, console)


def test_a_target_is_for_tables_of_numbers(tmp_path, console):
    with pytest.raises(UserError, match=r"shapes is not a table of numbers\. Leave out --target price"):
        resolved(config(shapes.write(tmp_path / "shapes", 4), target="price"), None, console)
    table = config(houses.write(tmp_path / "houses.csv", 60), target="price")
    prepared = resolved(table, None, console)
    assert sources.describe(prepared.data).target == "price"
    # Unchanged tables are prepared once, and a prepared one keeps its target.
    assert resolved(table, None, console) == resolved(prepared, None, console) == prepared
    with pytest.raises(UserError, match=r"is a table whose target is price\. Leave out --target verdict"):
        resolved(prepared.model_copy(update={"target": "verdict"}), None, console)
    with pytest.raises(UserError, match=r"without images for --image-fit"):
        resolved(table.model_copy(update={"image_fit": "pad"}), None, console)
    said = console.file.getvalue()
    assert "left out: country is the same in every row" in said
    assert "test rows, 6 columns; regression, because price is a number" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": (64,)}, r"mnist_5k is a published data set, without use for --image-size\. Leave that out"),
        ({"image_fit": "pad", "group": "patient", "skip_damaged": True}, "for --image-fit, --skip-damaged, --group"),
        ({"task": "regression"}, r"mnist_5k has classes, and no numbers to predict\. Leave out --task regression"),
    ],
)
def test_options_for_data_of_your_own_are_refused_for_published_data(console, options, message):
    with pytest.raises(UserError, match=message):
        resolved(config("mnist_5k", **options), None, console)
    assert resolved(config("mnist_5k", task="classification"), None, console).data == "mnist_5k"


def test_images_are_classified(tmp_path, console):
    folder = shapes.write(tmp_path / "shapes", 4)
    with pytest.raises(UserError, match=r"shapes has classes, and no numbers to predict\. Leave out --task regression"):
        resolved(config(folder, task="regression"), None, console)
    prepared = resolved(config(folder, task="classification", image_size=(16,)), None, console)
    # Its folder is named in the configuration of a run, next to the options that it was prepared with.
    assert resolved(prepared, None, console) == prepared


def test_images_with_any_number_of_classes_are_read_back_from_memory_and_disk(tmp_path, console):
    labels = ["red|round", "", "round", "red"] * 6
    lines = [f"{number}.png,{label}" for number, label in enumerate(labels)]
    for number in range(len(labels)):
        Image.new("RGB", (9, 9), (number, 0, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "table.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    data = config(tmp_path / "table.csv", label_separator="|", image_size=(9,))
    prepared = resolved(data, None, console).data
    info = sources.describe(prepared)
    assert (info.labels, info.multi_label, info.task) == (("red", "round"), True, "multi_label")
    assert "note: images without a class: 6" in console.file.getvalue()
    expected = {(number, *("red" in label, "round" in label)) for number, label in enumerate(labels)}
    for memory in (sources.MEMORY, 10):
        found = set()
        for split in ("train", "validation", "test"):
            examples = sources.load(prepared, split, memory=memory)
            images = examples.images if memory > 10 else np.concatenate(list(examples.images))
            assert examples.labels.dtype == np.uint8
            found |= {(int(image[0, 0, 0]), *row) for image, row in zip(images, examples.labels, strict=True)}
        assert found == expected
    # A prepared data set keeps its separator; one class each needs none.
    assert resolved(data.model_copy(update={"data": prepared}), None, console).data == prepared
    plain = resolved(config(shapes.write(tmp_path / "shapes", 4)), None, console).data
    with pytest.raises(UserError, match=r"has one class for each image\. Leave out --label-separator"):
        resolved(config(plain, label_separator="|"), None, console)


def test_published_images_with_several_classes_are_prepared_too(tmp_path, console):
    labels = tfds.features.Sequence(tfds.features.ClassLabel(names=("red", "round")))
    features = tfds.features.FeaturesDict({"image": tfds.features.Image(shape=(None, None, 3)), "labels": labels})
    sets = [["red", "round"], ["round"], [], ["red"]]
    examples = [
        (str(number), {"image": np.full((9 + number, 8, 3), number, np.uint8), "labels": sets[number % 4]})
        for number in range(16)
    ]
    builder = tfds.dataset_builders.AdhocBuilder(
        name="tagged", version="1.0.0", features=features, split_datasets={"train": examples}, data_dir=tmp_path
    )
    builder.download_and_prepare()
    prepared = resolved(config(builder.data_dir, image_size=(8,)), None, console).data
    info = sources.describe(prepared)
    assert (info.labels, info.multi_label) == (("red", "round"), True)
    train = sources.load(prepared, "train")
    found = {tuple(np.flatnonzero(row)) for row in train.labels}
    assert found <= {(0, 1), (1,), (), (0,)}
    for image, row in zip(train.images, train.labels, strict=True):
        assert sorted(np.array(("red", "round"))[row == 1]) == sorted(sets[int(image[0, 0, 0]) % 4])

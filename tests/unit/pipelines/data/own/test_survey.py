import re

import numpy as np
import pytest
from PIL import Image

from pipelines.core.errors import UserError
from pipelines.data.own.formats import find_items
from pipelines.data.own.item import Item
from pipelines.data.own.survey import Survey, notes, pixels, refuse, survey
from serving.errors import ImageError
from tests import shapes
from tests.shapes import encoded


def items(*labels, splits=(), same=False):
    return [
        Item(
            str(number), label, lambda n=number: encoded("circle", 0 if same else n), splits[number] if splits else None
        )
        for number, label in enumerate(labels)
    ]


def test_every_image_is_described(tmp_path):
    shapes.write(tmp_path, 2)
    Image.new("L", (30, 20), 9).save(tmp_path / "circle" / "grey.png")
    (tmp_path / "square" / "cut.png").write_bytes(encoded("square", 0)[:100])
    (tmp_path / "square" / "gone.png").symlink_to("nothing.png")
    done = []
    found = survey(find_items(tmp_path), done.append)
    assert sum(done) == 9
    assert len(found.images) == 7
    assert found.labels == shapes.CLASSES
    assert [image.size for image in found.images if image.is_grey] == [(20, 30)]
    assert len({image.digest for image in found.images}) == 7
    assert len(found.damaged) == 2
    assert "cut.png cannot be read" in found.damaged[0]
    assert "gone.png cannot be read: No such file" in found.damaged[1]


def test_classes_that_are_numbers_are_sorted_as_numbers():
    assert survey(items("10", "9", "1")).labels == ("1", "9", "10")
    assert survey(items("10", "9", "a")).labels == ("10", "9", "a")


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 1), (5, 4, 3), (5, 4, 4)])
def test_arrays_are_images(shape):
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    found = pixels(image, "a")
    assert found.shape == (5, 4, 4)
    channels = 1 if len(shape) == 2 else shape[-1]
    np.testing.assert_array_equal(found[..., :channels], image.reshape(5, 4, channels))
    with pytest.raises(ImageError, match=r"a has the shape \[5, 4, 2\]"):
        pixels(np.zeros((5, 4, 2), np.uint8), "a")


def test_damaged_images_are_refused_unless_they_are_skipped():
    broken = [*items("a", "b"), Item("broken", "a", lambda: b"")]
    found = survey(broken)
    with pytest.raises(UserError, match=r"(?s)1 of 3 images cannot be read:\n  broken .*--skip-damaged"):
        refuse(found, ["train"] * 2, skip_damaged=False)
    refuse(found, ["train"] * 2, skip_damaged=True)
    assert any("damaged images, which are left out: 1" in note for note in notes(found, ["train"] * 2))


def test_too_few_classes_are_refused():
    with pytest.raises(UserError, match="all images have the label 'a', and a classifier needs two"):
        refuse(survey(items("a", "a")), ["train", "train"], skip_damaged=False)
    with pytest.raises(UserError, match="b is a class without training images"):
        refuse(survey(items("a", "b")), ["train", "test"], skip_damaged=False)
    with pytest.raises(UserError, match="b is a class without training images"):
        refuse(survey(items(("a", "c"), ("a", "b"))), ["train", "test"], skip_damaged=False)
    with pytest.raises(UserError, match="no image has a label, and a classifier needs two"):
        refuse(survey(items((), ())), ["train", "train"], skip_damaged=False)


def test_a_folder_around_the_classes_is_named(tmp_path):
    shapes.write(tmp_path / "unpacked" / "shapes", 1)
    with pytest.raises(UserError, match=r"label 'shapes', .*\. Name the folder whose folders are the classes\."):
        refuse(survey(find_items(tmp_path / "unpacked")), ["train"] * 3, skip_damaged=False)
    # Labels of a table have nothing to do with its folders.
    lines = [f"unpacked/shapes/{label}/000.png,same" for label in shapes.CLASSES]
    (tmp_path / "table.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    with pytest.raises(UserError, match=r"label 'same', .*\. Add images of others\."):
        refuse(survey(find_items(tmp_path / "table.csv")), ["train"] * 3, skip_damaged=False)


def test_labels_that_are_no_classes_are_refused():
    numbers = [f"{number}.5" for number in range(11)]
    with pytest.raises(UserError, match=r"11 images have 11 different labels, too many for classes\."):
        refuse(survey(items(*numbers)), ["train"] * 11, skip_damaged=False)
    # As few images may be a first try, and classes with a second image are some.
    refuse(survey(items(*numbers[:9])), ["train"] * 9, skip_damaged=False)
    refuse(survey(items(*numbers, *numbers[:2])), ["train"] * 13, skip_damaged=False)
    # Of tags, there may be as many as images, or more.
    tags = [(f"t{number}", f"t{number + 1}") for number in range(11)]
    refuse(survey(items(*tags)), ["train"] * 11, skip_damaged=False)
    with pytest.raises(UserError, match=r"11 images have 22 different labels, too many for classes\."):
        refuse(survey(items(*[(f"a{number}", f"b{number}") for number in range(11)])), ["train"] * 11, False)


def test_labels_are_gathered_once_for_all_images(monkeypatch):
    gathered = []
    monkeypatch.setattr(Survey, "labels", property(lambda _: gathered.append(1) or ("a",)))
    named = [Item(f"a/b/{number}", "a", lambda: encoded("circle", 0)) for number in range(3)]
    with pytest.raises(UserError, match="all images have the label 'a'"):
        refuse(survey(named), ["train"] * 3, skip_damaged=False)
    assert len(gathered) == 1


@pytest.mark.parametrize(
    ("labels", "splits", "same", "expected"),
    [
        ("ab", ("train", "train"), False, "there is no test split"),
        ("aab", ("train", "test", "train"), False, "b is a class without test images"),
        ("aab", ("train", "test", "train"), True, r"images in two splits, .*: 1 \(0 = 1\)"),
        ("ab", ("train", "train"), True, r"images with two labels: 1 \(0 = 1\)"),
        ("aa", ("train", "train"), True, "images that occur more than once: 1"),
        ("a" * 10 + "b", ("train",) * 11, False, "a has 10 images and b has 1"),
        ((("a", "b"), (), ("b",)), ("train", "train", "test"), False, "images without a class: 1"),
        ((("a", "b"), ("b",)), ("train", "train"), True, r"images with two sets of classes: 1 \(0 = 1\)"),
        (((), ()), ("train", "train"), False, "images without a class: 2"),
        (("Cat", "dog", "cat"), ("train",) * 3, False, r"differ only in case: Cat, cat\. Give them one name"),
    ],
)
def test_what_is_unusual_is_noted(labels, splits, same, expected):
    assert any(re.search(expected, note) for note in notes(survey(items(*labels, same=same)), splits))


def test_nothing_is_noted_about_good_data():
    labels, splits = "abab" * 2, ("train", "train", "test", "test") * 2
    assert list(notes(survey(items(*labels)), splits)) == []

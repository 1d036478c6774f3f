"""Reference images: those that a version is tried on, and those to show."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from serving.errors import ModelError
from serving.inputs import Input
from serving.manifest import Manifest
from serving.reference import SHOWN, read

LABELS = tuple(f"class {number}" for number in range(20))


@pytest.fixture
def described(content):
    made = Manifest.model_construct(**content | {"labels": LABELS})
    return made.model_copy(update={"input": Input(**content["input"])})


def archive(count=40, classes=None, **changes):
    images = np.arange(count * 12, dtype="uint8").reshape(count, 4, 3, 1)
    probabilities = np.eye(20, dtype="float32")[np.arange(count) % 20]
    more = {} if classes is None else {"classes": classes}
    file = io.BytesIO()
    np.savez(file, **{"images": images, "probabilities": probabilities} | more | changes)
    return file.getvalue(), images


@pytest.mark.parametrize("classes", [[3, 3, 1], None])
def test_one_image_of_each_class_is_shown(described, classes):
    file, images = archive(3, classes)
    found = read(file, described, Path("parity.npz"))
    expected = [(2, "class 1"), (0, "class 3")] if classes else [(0, None), (1, None), (2, None)]
    assert [sample.label for sample in found.shown] == [label for _, label in expected]
    for sample, (number, _) in zip(found.shown, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(sample.png))), images[number, ..., 0])


def test_of_many_classes_some_are_shown(described):
    shown = read(archive()[0], described, Path("parity.npz")).shown
    assert len(shown) == SHOWN
    assert len({sample.png for sample in shown}) == SHOWN


@pytest.mark.parametrize("file", [archive(images=np.array([{}]))[0], archive()[0][:-9], np.lib.format.magic(1, 0), b""])
def test_a_damaged_file_gets_one_sentence_without_advice_to_load_it(described, file):
    with pytest.raises(ModelError, match=r"^parity\.npz is damaged: it is not an archive of NumPy arrays\. Export"):
        read(file, described, Path("parity.npz"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classes": np.array([0, 1, 20])}, "classes that its images or the manifest do not have"),
        ({"classes": np.array([0, 1])}, "classes that its images or the manifest do not have"),
        ({"images": np.zeros((3, 4, 3, 1))}, "another shape"),
        ({"images": np.zeros((3, 4, 4, 1), np.uint8)}, "another shape"),
    ],
)
def test_images_and_classes_must_fit_the_manifest(described, changes, said):
    with pytest.raises(ModelError, match=said):
        read(archive(3, **changes)[0], described, Path("parity.npz"))

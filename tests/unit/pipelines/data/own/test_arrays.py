"""Arrays in an `.npz` file."""

import numpy as np
import pytest

from pipelines.core.errors import UserError
from pipelines.data.own.formats import find_items

IMAGES, LABELS = np.zeros((2, 3, 3), np.uint8), np.arange(2)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["x_train", "y_train", "x_val", "y_val", "x_valid", "y_valid"], "validation: x_val and y_val, x_valid and y_"),
        (["images_test", "labels_test", "x_test", "y_test"], "split test: images_test and labels_test, x_test and y_"),
        (["images", "labels", "x", "y"], "two pairs of images and labels: images and labels, x and y. Join them, or"),
        (["x_train", "y_train", "x_test"], "has x_test without its counterpart, and images and labels of a split"),
        (["x", "y", "labels_test"], "has labels_test without its counterpart"),
        (["x_train", "y_train", "x_val", "y_validation"], "has x_val without its counterpart"),
    ],
)
def test_no_array_of_a_split_is_passed_over(tmp_path, names, said):
    np.savez(tmp_path / "a.npz", **{name: LABELS if name[0] in "ly" else IMAGES for name in names})
    with pytest.raises(UserError, match=said):
        find_items(tmp_path / "a.npz")


def test_pairs_may_have_names_of_several_kinds(tmp_path):
    np.savez(tmp_path / "a.npz", X_train=IMAGES, y_train=LABELS, images_dev=IMAGES, labels_dev=LABELS, mean=[0.5])
    assert [item.split for item in find_items(tmp_path / "a.npz")] == ["train"] * 2 + ["validation"] * 2


@pytest.mark.parametrize("groups", [1, ["a"], ["a", "b", "c"]])
def test_groups_are_one_for_each_image(tmp_path, groups):
    np.savez(tmp_path / "a.npz", x=IMAGES, y=LABELS, patient=groups)
    with pytest.raises(UserError, match=r"has no array 'patient' with a group for each image\. It has: x "):
        find_items(tmp_path / "a.npz", "patient")

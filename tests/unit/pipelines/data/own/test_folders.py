"""Folders with a subfolder for each class."""

import json
import unicodedata

import pytest

from pipelines.core.errors import UserError
from pipelines.data.own.formats import find_items, passed_over
from tests import shapes


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_linked_folders_are_followed_once(tmp_path):
    touch(tmp_path, "photos/cat/0.png", "photos/dog/1.png", "more/2.png", "more/.hidden/3.png")
    for name, target in (("more", "more"), ("all", "photos"), ("above", ""), ("dog", "photos/dog")):
        (tmp_path / "photos" / "cat" / name).symlink_to(tmp_path / target)
    (tmp_path / "more" / "back").symlink_to(tmp_path / "more")
    (tmp_path / "photos" / "dog" / "itself").symlink_to("itself")
    names = [item.name for item in find_items(tmp_path / "photos")]
    assert names == ["cat/0.png", "cat/dog/1.png", "cat/more/2.png", "dog/1.png"]


def test_names_that_look_the_same_are_one_class(tmp_path):
    composed, decomposed = (unicodedata.normalize(form, "caf\xe9") for form in ("NFC", "NFD"))
    touch(tmp_path, f"train/{composed}/0.png", f"test/{decomposed}/1.png")
    assert {item.label for item in find_items(tmp_path)} == {composed}


@pytest.mark.parametrize("above", ["", "train/"])
def test_files_that_are_no_images_are_noted(tmp_path, above):
    names = ("cat/0.png", "cat/0.txt", "cat/in/.hidden", "bird/0.jpe", "bird/1.JPE", "bird/LICENSE", "none/in/.keep")
    touch(tmp_path, *(above + name for name in names))
    assert passed_over(tmp_path) == [
        "files that are no images: 2 .jpe, 1 .txt, 1 without a suffix; folders without images, which are no classes: "
        f"{above}bird."
    ]


def test_nothing_is_noted_about_images_and_other_formats(tmp_path):
    shapes.write(tmp_path / "shapes", 1)
    assert passed_over(tmp_path / "shapes") == []
    assert passed_over(touch(tmp_path, "a.npz") / "a.npz") == []


@pytest.mark.parametrize("name", ["state.json", "dataset_dict.json"])
@pytest.mark.parametrize("content", ["{}", "[]", '"_data_files"'])
def test_other_files_with_a_name_of_hugging_face_are_passed_over(tmp_path, name, content):
    (shapes.write(tmp_path, 1) / name).write_text(content)
    assert {item.label for item in find_items(tmp_path)} == {*shapes.CLASSES}


def test_a_split_without_its_list_of_files_is_damaged(tmp_path):
    touch(tmp_path, "train/state.json")
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train"]}))
    for content, why in (("{}", "_data_files is missing"), ("[]", "_data_files is missing"), ("", "Expecting value")):
        (tmp_path / "train" / "state.json").write_text(content)
        with pytest.raises(UserError, match=rf"state\.json cannot be read: {why}.*Save the data set again"):
            find_items(tmp_path)

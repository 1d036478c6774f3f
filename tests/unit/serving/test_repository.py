import shutil
from pathlib import Path

import pytest

from serving.errors import ModelError
from serving.repository import find, listed, versions


def test_a_version_folder_is_found_itself(version):
    assert find(version) == version


def test_the_newest_version_is_by_number_not_by_name(version):
    for number in ("2", "10"):
        shutil.copytree(version, version.parent / number)
    assert find(version.parent) == version.parent / "10"


@pytest.mark.parametrize("name", [".export-12", "0", "03", "-1", "1a", "²", "latest", f"{2**63}", "9" * 20])
def test_other_names_are_not_versions(version, name):
    shutil.copytree(version, version.parent / name)
    assert versions(version.parent) == [1]


def test_a_file_with_a_number_is_not_a_version(version):
    (version.parent / "7").write_text("")
    assert versions(version.parent) == [1]


def test_a_link_to_nowhere_is_listed_and_is_no_version(version):
    (version.parent / "7").symlink_to(version / "nothing")
    assert (versions(version.parent), listed(version.parent)) == ([1], ([1, 7], {}))


def test_missing_path(tmp_path):
    with pytest.raises(ModelError, match="there is no model"):
        find(tmp_path / "nothing")


def test_a_similar_name_is_suggested(version, monkeypatch):
    model = version.parent
    with pytest.raises(ModelError, match=rf"Did you mean {model}\?"):
        find(model.with_name(f"{model.name}s"))
    monkeypatch.chdir(version)
    with pytest.raises(ModelError, match=r"Did you mean mnist\?"):
        find(Path("mnits"))


def test_a_folder_of_something_else(tmp_path):
    with pytest.raises(ModelError, match="is not a model: expected a version folder"):
        find(tmp_path)


def test_a_folder_that_hides_a_net_of_the_package_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10").mkdir()
    with pytest.raises(
        ModelError, match=r"\.\.\.\)\. Rename the folder, which hides the net of the package of the same"
    ):
        find(Path("cifar10"))

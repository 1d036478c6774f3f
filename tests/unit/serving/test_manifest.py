import json

import pytest

from serving.errors import ModelError
from serving.manifest import NAME, Manifest, read


def test_a_written_manifest_is_read(version):
    found = read(version)
    assert found.labels == ("zero", "one", "two", "three")
    assert found.input.shape == (None, 4, 3, 1)
    assert set(found.files) == {"model.onnx", "labels.txt", "variables/variables.index"}
    assert Manifest.model_validate_json(found.model_dump_json()) == found


def test_a_folder_without_a_manifest_is_not_a_version(tmp_path):
    with pytest.raises(ModelError, match=r"is not a model version: it has no manifest\.json"):
        read(tmp_path)


@pytest.mark.parametrize("damaged", [b"", b'{"format": 1', b"[]", b"\xff\xfe"])
def test_damaged_json_is_refused_by_name(version, damaged):
    (version / NAME).write_bytes(damaged)
    with pytest.raises(ModelError, match=r"1/manifest\.json is damaged"):
        read(version)


def change(version, **changes):
    path = version / NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_later_format_is_refused_with_both_numbers(version):
    change(version, format=2)
    with pytest.raises(ModelError, match="has format 2, this program reads format 1"):
        read(version)


def test_fields_of_a_later_writer_are_ignored(version):
    change(version, warm_up=7)
    assert read(version).version == 1


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "./labels.txt"])
def test_files_outside_the_folder_are_refused(version, name):
    files = json.loads((version / NAME).read_text())["files"]
    change(version, files={**files, name: files["labels.txt"]})
    with pytest.raises(ModelError, match="must be inside the folder"):
        read(version)


def test_the_onnx_file_must_be_listed(version):
    files = json.loads((version / NAME).read_text())["files"]
    del files["model.onnx"]
    change(version, files=files)
    with pytest.raises(ModelError, match=r"model\.onnx must be among the files"):
        read(version)

import json

import pytest

from serving.errors import ModelError
from serving.manifest import NAME, Manifest, read
from tests import table_model


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
    change(version, format=3)
    with pytest.raises(ModelError, match="has format 3, this program reads formats 1 and 2"):
        read(version)


def test_fields_of_a_later_writer_are_ignored(version):
    change(version, warm_up=7)
    assert read(version).version == 1


@pytest.mark.parametrize("number", [0, 2**63])
def test_numbers_beyond_64_bits_are_refused(version, number):
    path = version / NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": number}))
    with pytest.raises(ModelError, match="is damaged: version: Input should be"):
        read(version)


def test_a_measurement_of_the_saved_model_is_required(version):
    parity = json.loads((version / NAME).read_text())["parity"]
    del parity["saved_model"]
    change(version, parity=parity)
    with pytest.raises(ModelError, match="the parity of the SavedModel is missing"):
        read(version)


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
    with pytest.raises(ModelError, match=r"is damaged: files: model\.onnx must be among the files"):
        read(version)


@pytest.fixture(params=[False, True], ids=["classes", "regression"])
def table(request, tmp_path):
    return table_model.write(tmp_path / "models" / "houses" / "1", regression=request.param)


def test_the_manifest_of_a_table_is_read(table):
    found = read(table)
    assert found.is_table
    assert [column.name for column in found.columns] == ["rooms", "age", "city"]
    assert found.columns[2].categories == ("Paris", "Rome", "Oslo")
    assert found.computed == (("probabilities" if found.labels else "value"), "gate_means")
    assert found.target == ("sold" if found.labels else "price")
    assert Manifest.model_validate_json(found.model_dump_json()) == found


def test_the_manifest_of_images_says_nothing_about_tables(version):
    found = read(version)
    assert (found.is_table, found.columns, found.predicted) == (False, (), "probabilities")
    assert not {"target", "multi_label"} & found.model_dump().keys()


def columns(*names, **more):
    made = [{"name": name, "categories": None, **more} for name in names]
    return {"name": "row", "shape": [None, 3], "columns": made}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 1}, "tables alone have format 2 and a target"),
        ({"target": None}, "tables alone have format 2 and a target"),
        ({"input": columns("rooms", "age")}, "2 columns do not make rows of 3 values"),
        ({"input": columns("rooms", "age", "age")}, "two columns have the same name"),
        ({"input": columns("a", "b", "c", categories=["x", "x"])}, "a category is listed twice"),
        ({"pictures": "digit"}, "neither a conversion of images nor maps"),
        ({"outputs": {}}, "is missing|classes need labels"),
        ({"labels": ["a"], "temperature": 2.0}, "neither labels nor a temperature|the number of labels is 1"),
        ({"multi_label": True, "labels": []}, "a regression has no classes|classes need labels"),
        ({"input": columns("a", "b", "c", date="year")}, "Input should be 'day' or 'time'"),
    ],
)
def test_the_manifest_of_a_table_must_agree_with_itself(table, changes, said):
    change(table, **changes)
    with pytest.raises(ModelError, match=said):
        read(table)


def test_classes_need_their_labels(version):
    change(version, labels=[])
    with pytest.raises(ModelError, match=r"classes need labels, and labels\.txt among the files"):
        read(version)

"""Versions for tables: they are opened, tried, and refused like those for images."""

import shutil

import numpy as np
import onnx
import pytest

from serving import manifest
from serving.errors import ImageError, ModelError
from serving.model import open_model
from tests import table_model

from .changed_versions import seal, tried

KINDS = {"sales": False, "houses": True}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A repository with a classifier and a regression, not to be changed."""
    root = tmp_path_factory.mktemp("made")
    for name, regression in KINDS.items():
        table_model.write(root / name / "1", regression)
    return root


@pytest.fixture
def models(made, tmp_path):
    return shutil.copytree(made, tmp_path / "models")


@pytest.mark.parametrize(("name", "regression"), KINDS.items())
@pytest.mark.parametrize("batch", [0, 1, 6])
def test_rows_are_predicted(made, name, regression, batch):
    rows = table_model.ROWS[:batch]
    found = open_model(made / name).predict(rows)
    expected = table_model.expected(rows, regression)
    assert found.keys() == expected.keys()
    for output, value in expected.items():
        np.testing.assert_allclose(found[output], value, rtol=1e-5, atol=1e-6)


def test_a_version_without_gates_is_predicted(tmp_path):
    folder = table_model.write(tmp_path / "houses" / "1", regression=True, gates=False)
    assert set(open_model(folder).predict(table_model.ROWS)) == {"value"}
    assert tried(folder).manifest.gates is None


@pytest.mark.parametrize("rows", [np.zeros((1, 3)), np.zeros((1, 4), "float32"), np.zeros((1, 4, 3, 1), "uint8")])
def test_other_inputs_are_refused(made, rows):
    with pytest.raises(ValueError, match=r"rows must be float32 of shape \(batch, 3\).*Received"):
        open_model(made / "houses").predict(rows)


def test_images_are_refused(made):
    with pytest.raises(ImageError, match="model 'houses' takes rows of a table, not images"):
        open_model(made / "houses").to_input(np.zeros((9, 9, 4), np.uint8))


def test_samples_are_one_row_of_each_class_or_rows_from_the_smallest_value_to_the_largest(made):
    sales, houses = (open_model(made / name).samples.shown for name in KINDS)
    assert [sample.label for sample in sales] == ["no", "later", "yes"]
    assert sales[2].row == {"rooms": 4, "age": 10, "city": "Rome"}
    assert [sample.row["rooms"] for sample in houses] == [None, 2, 1, 3, 4, 6]
    assert {sample.label for sample in houses} == {None}
    assert {sample.png for sample in (*sales, *houses)} == {b""}


def edit(folder, change):
    model = onnx.load(folder / manifest.ONNX)
    change(model.graph)
    onnx.save(model, folder / manifest.ONNX)
    seal(folder)


def rename_output(graph):
    graph.node[3].output[0] = graph.output[0].name = "price"


def fewer_columns(graph):
    graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2


def fixed_batch(graph):
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def bias(value):
    def change(graph):
        place = next(place for place, one in enumerate(graph.initializer) if one.name == "bias")
        graph.initializer[place].CopyFrom(onnx.numpy_helper.from_array(np.array([value], "float32"), "bias"))

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (rename_output, "has no value, which the manifest names"),
        (fewer_columns, r"has row as tensor\(float\) \[n, 2\]|cannot be loaded"),
        (fixed_batch, r"has row as tensor\(float\) \[1, 3\]"),
        # The reference values span 235.
        (bias(103), "does not predict like the Keras model"),
        (bias(np.nan), "NaN or infinity as value"),
    ],
)
def test_a_graph_must_be_that_of_the_manifest(models, change, said):
    edit(models / "houses" / "1", change)
    with pytest.raises(ModelError, match=said):
        tried(models / "houses" / "1")


def test_values_may_differ_by_a_percent_of_their_range(models):
    edit(models / "houses" / "1", bias(102))
    assert tried(models / "houses" / "1").manifest.target == "price"


def test_nearly_equal_values_need_not_be_the_same_to_the_last_bit(models):
    folder = models / "houses" / "1"
    rows = np.repeat(table_model.ROWS[:1], 3, axis=0)
    np.savez(folder / manifest.REFERENCE, rows=rows, value=np.full((3, 1), 300.001, "float32"))
    seal(folder)
    assert tried(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": table_model.ROWS[:, :2]}, "rows or probabilities of another shape"),
        ({"rows": table_model.ROWS.astype("float64")}, "of another shape"),
        ({"probabilities": np.zeros((6, 2), "float32")}, "of another shape"),
        ({"classes": np.array([0, 1, 2, 3, 0, 0])}, "classes that its rows or the manifest do not have"),
        ({"rows": np.full((6, 3), 3, "float32")}, "rows that its columns do not allow: row 1: city must be the index"),
    ],
)
def test_reference_rows_must_fit_the_manifest(models, changes, said):
    folder = models / "sales" / "1"
    kept = {"rows": table_model.ROWS, "classes": table_model.CLASSES, **table_model.expected(table_model.ROWS)}
    np.savez(folder / manifest.REFERENCE, **kept | changes)
    seal(folder)
    with pytest.raises(ModelError, match=said):
        tried(folder)


def test_a_version_without_reference_rows_is_tried_on_a_row_of_zeros(models):
    folder = models / "houses" / "1"
    (folder / manifest.REFERENCE).unlink()
    seal(folder)
    assert tried(folder).samples is None
    edit(folder, bias(np.inf))
    with pytest.raises(ModelError, match="NaN or infinity"):
        tried(folder)


def test_the_labels_of_classes_must_be_those_of_the_manifest(models):
    (models / "sales" / "1" / manifest.LABELS).write_text("no\nyes\n")
    seal(models / "sales" / "1")
    with pytest.raises(ModelError, match="labels of the manifest"):
        tried(models / "sales" / "1")


def test_a_version_with_any_number_of_classes_is_tried_on_its_own_rows(tmp_path):
    folder = table_model.write(tmp_path / "tags" / "1", multi_label=True)
    opened = open_model(folder)
    assert opened.manifest.multi_label
    assert [sample.label for sample in opened.samples.shown] == ["yes", "no, later"]
    assert tried(folder).manifest.labels == table_model.LABELS
    with np.load(folder / manifest.REFERENCE) as arrays:
        changed = {**arrays, "classes": table_model.CLASSES}
    np.savez(folder / manifest.REFERENCE, **changed)
    seal(folder)
    with pytest.raises(ModelError, match="has classes that its rows or the manifest do not have"):
        open_model(folder)

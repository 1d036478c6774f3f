"""Class labels of Hugging Face's Parquet files: numbers whose names are in the metadata."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.core.errors import UserError
from pipelines.data.own import new_rows, rows, table_files
from tests.unit.pipelines.data.own.small_tables import with_x


def from_hub(tmp_path, **features):
    """Writes a table like those of Hugging Face's hub, in which -1 is a missing label."""
    info = {"features": {"y": {"names": ["no", "yes"], "_type": "ClassLabel"}, **features}}
    columns = with_x(y=[0, 1, -1, 1] * 15, z=[1, 0] * 30)
    table = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": info})})
    pq.write_table(table, tmp_path / "hub.parquet")
    return tmp_path / "hub.parquet"


def test_class_labels_of_a_parquet_file_are_names(tmp_path):
    path = from_hub(tmp_path)
    found = rows.read(path)
    assert (found.labels, len(found.truth)) == (("no", "yes"), 45)
    assert [found.labels[one] for one in found.truth[:3]] == ["no", "yes", "yes"]
    again = new_rows.read(path, found.columns, "y", found.labels)
    np.testing.assert_array_equal(again.truth[:4], [0, 1, np.nan, 1])
    assert again.warnings == ()
    # 0 is the first name, even if that is a truth value.
    path = from_hub(tmp_path, y={"names": ["true", "false"]})
    found = rows.read(path)
    again = new_rows.read(path, found.columns, "y", found.labels)
    np.testing.assert_array_equal(again.truth[~np.isnan(again.truth)], found.truth)
    with pytest.raises(UserError, match=r"row 2 of .*hub\.parquet has the label 1\. Expected the number of one of 1"):
        rows.read(from_hub(tmp_path, y={"names": ["yes"]}))
    with pytest.raises(UserError, match=r"class labels in its Hugging Face metadata\. Correct the label, or write"):
        rows.read(path)


def test_class_labels_are_numbers_for_a_regression(tmp_path):
    # Also if the names are those of an earlier state of the column.
    for names in (["no", "yes"], ["no"]):
        found = rows.read(from_hub(tmp_path, y={"names": names}), task="regression")
        assert (found.labels, found.truth[:4].tolist()) == ((), [0, 1, -1, 1])


def test_a_net_of_numbers_reads_the_numbers_of_class_labels(tmp_path):
    path = from_hub(tmp_path)
    columns = rows.read(path).columns
    again = new_rows.read(path, columns, "y", ("-1", "0", "1"))
    assert (again.truth[:4].tolist(), again.warnings) == ([1, 2, 0, 2], ())
    # Names that the net does not know are named.
    assert "not trained on (no, yes)" in new_rows.read(path, columns, "y", ("nein", "ja")).warnings[0]
    # The names may be numbers themselves.
    again = new_rows.read(from_hub(tmp_path, y={"names": ["7", "0"]}), columns, "y", ("0", "7"))
    np.testing.assert_array_equal(again.truth[:4], [1, 0, np.nan, 0])


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.uint64(), pa.int64()])
def test_the_first_number_without_a_class_is_named(tmp_path, kind):
    metadata = {"huggingface": json.dumps({"info": {"features": {"y": {"names": ["no", "yes"]}}}})}
    cells = pa.chunked_array([[1, None], [0, 2, 3]], kind)
    pq.write_table(pa.table({"y": cells}).replace_schema_metadata(metadata), tmp_path / "hub.parquet")
    with pytest.raises(UserError, match=r"row 4 of .*hub\.parquet has the label 2\. "):
        table_files.read_file(tmp_path / "hub.parquet", classes=["y"])
    pq.write_table(pa.table({"y": cells[:3]}).replace_schema_metadata(metadata), tmp_path / "hub.parquet")
    read = table_files.read_file(tmp_path / "hub.parquet", classes=["y"])
    assert read["y"].to_pylist() == ["yes", None, "no"]


def test_class_labels_may_be_lists_or_several_targets(tmp_path):
    names = {"names": ["big", "new"], "_type": "ClassLabel"}
    features = {"tags": {"feature": names, "_type": "List"}, "a": names, "b": names}
    columns = with_x(tags=[[0, 1], [1], [-1]] * 20, a=[0, 1, 1] * 20, b=[0, 0, 1] * 20)
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    path = tmp_path / "hub.parquet"
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    found = rows.read(path, "tags")
    assert found.labels == ("big", "new")
    assert found.truth[:3].tolist() == [[1, 1], [0, 1], [0, 0]]
    assert rows.read(path, "a,b").truth[:3].tolist() == [[0, 0], [1, 0], [1, 1]]

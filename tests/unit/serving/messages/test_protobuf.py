import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.messages.open_inference import BULK, CLASSES
from serving.messages.protobuf import FIELDS, bulk_bytes, first_field, message_classes

Request = CLASSES["ModelInferRequest"]


def test_maps_enums_and_nested_messages():
    tables = {
        "Point": ((1, "x", "double"), (2, "kind", "Kind")),
        "Line": ((3, "points", "*Point"), (4, "by_name", "map Point")),
    }
    line = message_classes("test_tables", tables, {"Kind": {"NONE": 0, "START": 5}})["Line"]
    made = line(points=[{"x": 1.5, "kind": "START"}])
    made.by_name["a"].x = 2.5
    found = line.FromString(made.SerializeToString())
    assert (found.points[0].x, found.points[0].kind, found.by_name["a"].x) == (1.5, 5, 2.5)


def test_the_first_field_of_a_number_is_found():
    body = Request(model_name="täg", model_version="2", id="x").SerializeToString()
    assert [first_field(body, number) for number in (1, 2, 3, 4)] == ["täg".encode(), b"2", b"x", b""]


def test_long_raw_tensors_and_files_are_bulk():
    body = Request(model_name="a" * 5000, raw_input_contents=[bytes(9000)]).SerializeToString()
    assert bulk_bytes(body, BULK) == 9000
    tensor = {"name": "image_bytes", "contents": {"bytes_contents": [bytes(2000), bytes(3000), b"short"]}}
    assert bulk_bytes(Request(inputs=[tensor]).SerializeToString(), BULK) == 5000
    tensor = {"name": "image", "contents": {"uint_contents": [1] * 50_000}}
    assert bulk_bytes(Request(inputs=[tensor]).SerializeToString(), BULK) == 0


def test_the_search_ends_after_some_fields():
    body = Request(raw_input_contents=[b""] * FIELDS + [bytes(9000)]).SerializeToString()
    assert bulk_bytes(body, BULK) == 0
    assert first_field(body, 1) == b""


@given(st.binary(max_size=200))
@pytest.mark.parametrize("prefix", [b"", Request(model_name="a", raw_input_contents=[bytes(2000)]).SerializeToString()])
def test_anything_is_searched_without_an_error(prefix, body):
    assert 0 <= bulk_bytes(prefix + body, BULK) <= len(prefix + body)
    first_field(prefix + body, 3)

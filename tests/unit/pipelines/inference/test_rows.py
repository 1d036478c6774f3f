from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.inference.inputs import Fetched
from pipelines.inference.net_inputs import BATCH, BATCH_BYTES, NetInput, batches, converter
from pipelines.inference.rows import RowBuilder
from serving import image_files
from serving.errors import ImageError
from serving.model import open_model
from tests import tiny_model


@pytest.fixture(scope="module")
def opened(model):
    return open_model(model)


def table(rows, seen):
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(rows(seen), schema=rows.schema("{}"))]).to_pylist()


@given(st.lists(st.one_of(st.none(), st.integers(0, 255)), max_size=12), st.integers(1, 6), st.booleans())
@settings(deadline=None)
def test_each_row_belongs_to_its_image(opened, values, count, explain):
    shape = tiny_model.SHAPE
    images = [
        None if value is None else np.roll(np.arange(12, dtype=np.uint8), value).reshape(shape) * 20 for value in values
    ]
    seen = [NetInput(str(at), image, "bad" if image is None else None) for at, image in enumerate(images)]
    found = table(RowBuilder(opened, count, explain), seen)
    assert [row["path"] for row in found] == [str(at) for at in range(len(values))]
    for row, image in zip(found, images, strict=True):
        if image is None:
            assert row.pop("path").isdecimal()
            assert row.pop("error") == "bad"
            assert set(row.values()) == {None}
            continue
        outputs = opened.predict(image[None])
        np.testing.assert_allclose(row["probabilities"], outputs["probabilities"][0], atol=1e-6)
        order = np.argsort(-np.array(row["probabilities"]), kind="stable")[:count]
        assert [guess["label"] for guess in row["top"]] == [tiny_model.LABELS[index] for index in order]
        assert [guess["probability"] for guess in row["top"]] == [row["probabilities"][index] for index in order]
        assert {"label": row["label"], "probability": row["probability"]} == row["top"][0]
        assert row["error"] is None
        if explain:
            np.testing.assert_allclose(row["gate_means"], outputs["gate_means"][0], atol=1e-6)
        else:
            assert "gate_means" not in row


def test_an_image_is_decoded_from_where_it_is(opened, encoded, tmp_path):
    path = tmp_path / "one.png"
    path.write_bytes(encoded(1))
    expected = opened.to_input(image_files.read(path))
    given_ = [Fetched("a", path), Fetched("b", encoded(1)), Fetched("c", ImageError("a link")), Fetched("d", b"GIF")]
    first, second, third, fourth = converter(opened)(given_)
    np.testing.assert_array_equal(first.image, expected)
    np.testing.assert_array_equal(second.image, expected)
    assert third == NetInput("c", None, "a link")
    assert fourth.image is None
    assert fourth.error.startswith("d is not an image")


def test_an_error_about_an_odd_name_can_be_written(opened):
    (seen,) = converter(opened)([Fetched("\\xe9", Path("no\udce9.png"))])
    assert seen.error == "there is no file no\\xe9.png."
    assert table(RowBuilder(opened, 1, False), [seen])[0]["error"] == seen.error


def contents(sizes, folder):
    """Returns contents of these sizes, in memory, or in files if a folder is given."""
    for number, size in enumerate(sizes):
        content = bytes(size)
        if folder:
            (folder / str(number)).write_bytes(content)
        yield folder / str(number) if folder else content


@pytest.mark.parametrize("on_disk", [False, True])
@given(sizes=st.lists(st.one_of(st.just(9), st.integers(0, BATCH_BYTES // 3)), max_size=40))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_are_of_some_images_and_not_too_many_bytes(tmp_path, on_disk, sizes):
    given_ = [Fetched(str(at), content) for at, content in enumerate(contents(sizes, on_disk and tmp_path))]
    made = list(batches(given_))
    assert [image for batch in made for image in batch] == given_
    starts = np.cumsum([0, *map(len, made)])
    for start, batch in zip(starts, made, strict=False):
        taken = sizes[start : start + len(batch)]
        assert sum(taken[:-1]) < BATCH_BYTES
        assert batch is made[-1] or len(batch) == BATCH or sum(taken) >= BATCH_BYTES


def test_small_images_and_missing_ones_fill_batches(tmp_path):
    given_ = [Fetched("x", b"small"), Fetched("y", tmp_path / "missing"), Fetched("z", ImageError("a link"))] * BATCH
    assert [len(batch) for batch in batches(given_)] == [BATCH] * 3


def test_the_file_identifies_the_model(opened):
    described = RowBuilder(opened, 3, True).schema("{}").metadata
    assert described[b"model"] == b"tiny"
    assert described[b"version"] == b"1"
    assert described[b"labels"].decode().split("\n") == [*tiny_model.LABELS]
    assert described[b"layers"].decode().split("\n") == [*tiny_model.LAYERS]

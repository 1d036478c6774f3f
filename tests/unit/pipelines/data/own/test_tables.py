"""Tables of images: their paths, columns and files."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.core.errors import UserError
from pipelines.data.own import tables
from pipelines.data.own.formats import find_items
from serving.errors import ImageError
from tests import shapes


def test_only_parquet_files_of_one_table_are_read_together(tmp_path):
    for name in ("full/train/0.parquet", "full/test/0.parquet"):
        (tmp_path / name).parent.mkdir(parents=True)
        pq.write_table(pa.table({"image": [b""], "label": ["a"]}), tmp_path / name)
    found = [(item.name, item.split) for item in find_items(tmp_path)]
    assert found == [("test: row 1 of 0.parquet", "test"), ("train: row 1 of 0.parquet", "train")]
    (tmp_path / "full" / "train" / "0.png").touch()
    with pytest.raises(UserError, match=r"read as a folder with a subfolder for each class|is in no folder"):
        find_items(tmp_path / "full")
    (tmp_path / "full" / "train" / "0.png").unlink()
    (tmp_path / "small" / "train").mkdir(parents=True)
    (tmp_path / "small" / "train" / "0.parquet").touch()
    with pytest.raises(
        UserError, match=r"Parquet files in several folders \(full, small\)\. Name one of them, or write"
    ):
        find_items(tmp_path)
    (tmp_path / "full" / "_delta_log").mkdir()
    with pytest.raises(UserError, match=r"full is a Delta table, whose files may hold deleted rows"):
        find_items(tmp_path / "full")


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view()])
def test_paths_may_be_large_strings_or_views(tmp_path, kind):
    paths = pa.array(["a.png", "b.png"], kind)
    pq.write_table(pa.table({"path": paths, "label": ["a", "b"]}), tmp_path / "a.parquet")
    assert [item.name for item in find_items(tmp_path / "a.parquet")] == ["a.png", "b.png"]
    assert tables.paths(tmp_path / "a.parquet") == {"a.png", "b.png"}


def test_a_table_may_have_paths_of_windows(tmp_path):
    shapes.write(tmp_path / "photos", 1)
    # On other systems, a backslash may be part of a name.
    (tmp_path / "photos\\a.png").write_bytes(b"content")
    names = ["photos\\circle\\000.png", "photos/square/000.png", "photos\\a.png"]
    (tmp_path / "a.csv").write_text("".join(f"{name},label\n" for name in ["path", *names]))
    read = [item.read() for item in find_items(tmp_path / "a.csv")]
    expected = [tmp_path / "photos" / label / "000.png" for label in ("circle", "square")]
    assert read == [*(path.read_bytes() for path in expected), b"content"]
    assert tables.paths(tmp_path / "a.csv") == {*names, "photos/circle/000.png", "photos/a.png"}


def test_captions_next_to_folders_of_classes_are_no_labels(tmp_path):
    shapes.write(tmp_path, 1)
    found = find_items(tmp_path)
    lines = [f'{{"file_name": "{label}/000.png", "text": "a {label}"}}\n' for label in shapes.CLASSES]
    (tmp_path / "metadata.jsonl").write_text("".join(lines))
    assert [(item.name, item.label) for item in find_items(tmp_path)] == [(item.name, item.label) for item in found]
    # One label is enough for the file to have a column of them.
    (tmp_path / "metadata.jsonl").write_text("".join(lines) + '{"file_name": "circle/000.png", "Label": "round"}\n')
    with pytest.raises(UserError, match="has no label"):
        find_items(tmp_path)


def test_of_columns_that_differ_only_in_case_the_first_counts(tmp_path):
    (tmp_path / "a.csv").write_text("path,label,Label,PATH\na.png,cat,1,b.png\n")
    assert [(item.name, item.label) for item in find_items(tmp_path / "a.csv")] == [("a.png", "cat")]
    assert tables.paths(tmp_path / "a.csv") == {"a.png"}


def test_images_of_a_table_are_not_downloaded_from_urls(tmp_path):
    (tmp_path / "a.csv").write_text("path,label\nhttps://host/a.png,cat\n")
    (item,) = find_items(tmp_path / "a.csv")
    with pytest.raises(ImageError, match=r"https://host/a\.png is a URL\. Expected a path: download the image"):
        item.read()


def test_labels_of_a_table_are_names_even_if_they_are_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("path,label\na.png,007\nb.png,7\n")
    assert [item.label for item in find_items(tmp_path / "a.csv")] == ["007", "7"]
    (tmp_path / "a.csv").write_text("path, label\na.png, NA\nb.png,none \n")
    assert [item.label for item in find_items(tmp_path / "a.csv")] == ["NA", "none"]


def test_images_of_a_file_that_is_written_again_are_the_new_ones(tmp_path):
    for images in ([b"cat", b"dog"], [b"dog", b"cat"], [b"dog", b"cat", b"cow"]):
        labels = [image.decode() for image in images]
        pq.write_table(pa.table({"image": images, "label": labels}), tmp_path / "a.parquet")
        found = [(item.label, item.read()) for item in find_items(tmp_path / "a.parquet")]
        assert found == [(image.decode(), image) for image in images]

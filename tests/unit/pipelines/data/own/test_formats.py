"""The same images in every supported format."""

import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.core.errors import UserError
from pipelines.data.own.formats import find_items
from pipelines.data.own.prepare import is_own
from pipelines.data.own.survey import pixels, survey
from tests import shapes
from tests.shapes import CLASSES, encoded
from tests.unit.pipelines.data.own.small_tars import a_tar

SEEDS = (0, 1)
ROWS = [(label, seed) for label in CLASSES for seed in SEEDS]
SPLITS = {0: "train", 1: "test"}


def folder(root, split):
    for label, seed in ROWS:
        file = root / (SPLITS[seed] if split else "") / label / "deep" / f"{seed}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded(label, seed))
    (root / ".hidden").mkdir()
    (root / ".hidden" / "0.png").write_bytes(b"")
    return root


def csv(root, split, suffix=".csv", comma=","):
    lines = [comma.join(["path", "label", *(["split"] if split else [])])]
    for label, seed in ROWS:
        (root / f"{label} {seed}.png").write_bytes(encoded(label, seed))
        lines.append(comma.join([f"{label} {seed}.png", label, *([SPLITS[seed]] if split else [])]))
    (root / f"table{suffix}").write_text("\n".join(lines) + "\n")
    return root / f"table{suffix}"


def tsv(root, split):
    return csv(root, split, ".tsv", "\t")


def imagefolder(root, split):
    csv(root, split).rename(root / "metadata.csv")
    return root


def json_lines(root, split):
    lines = []
    for label, seed in ROWS:
        (root / f"{label} {seed}.png").write_bytes(encoded(label, seed))
        values = {"file_name": f"{label} {seed}.png", "label": label} | ({"split": SPLITS[seed]} if split else {})
        lines.append(json.dumps(values))
    (root / "metadata.jsonl").write_text("\n".join([*lines, ""]))
    return root


def columns(split):
    found = {"image": [encoded(*row) for row in ROWS], "label": [label for label, _ in ROWS]}
    return found | ({"split": [SPLITS[seed] for _, seed in ROWS]} if split else {})


def parquet(root, split):
    pq.write_table(pa.table(columns(split)), root / "table.parquet", row_group_size=4)
    return root / "table.parquet"


def parquet_folder(root, split):
    found = pa.table(columns(False))
    for seed in SEEDS:
        # As Hugging Face names them, and Spark.
        file = root / "data" / (f"{SPLITS[seed]}-00000-of-00001.parquet" if split else f"part-{seed}.parquet")
        file.parent.mkdir(exist_ok=True)
        pq.write_table(found.take([place for place, row in enumerate(ROWS) if row[1] == seed]), file)
    (root / "data" / "_metadata.parquet").touch()
    return root


def npz(root, split):
    # Images of an array have one size.
    arrays = {"x": [], "y": []} if not split else {f"{name}_{part}": [] for part in SPLITS.values() for name in "xy"}
    for label, seed in ROWS:
        end = f"_{SPLITS[seed]}" if split else ""
        arrays[f"x{end}"].append(np.asarray(shapes.drawn(label, seed).resize((9, 8))))
        arrays[f"y{end}"].append([label])
    np.savez(root / "data.npz", **{name: np.array(array) for name, array in arrays.items()})
    return root / "data.npz"


def tars(root, split):
    for part, numbers in {"train": (0,), "test": (1,)}.items() if split else {"all": SEEDS}.items():
        with tarfile.open(root / f"{part}-0000.tar", "w") as tar:
            for label, seed in ROWS:
                if seed in numbers:
                    for suffix, content in (
                        ("png", encoded(label, seed)),
                        ("json", json.dumps({"label": label}).encode()) if seed else ("cls", f"{label}\n".encode()),
                    ):
                        member = tarfile.TarInfo(f"{label}/{seed}.{suffix}")
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))
    return root


def arrow(root, split):
    """Writes a folder like that of `save_to_disk`: numbers of classes, and images with their bytes and path."""
    features = {"label": {"names": list(CLASSES), "_type": "ClassLabel"}, "image": {"_type": "Image"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    for part, numbers in {"train": (0,), "test": (1,)}.items() if split else {"": SEEDS}.items():
        rows = [(label, seed) for label, seed in ROWS if seed in numbers]
        table = pa.table(
            {
                "image": [{"bytes": encoded(*row), "path": f"{row[1]}.png"} for row in rows],
                "label": pa.array([CLASSES.index(label) for label, _ in rows], pa.int64()),
            }
        ).replace_schema_metadata(metadata)
        (root / part).mkdir(exist_ok=True)
        with pa.OSFile(str(root / part / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
        (root / part / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
        (root / part / "dataset_info.json").write_text(json.dumps({"features": features}))
    if split:
        (root / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    return root


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    "write", [folder, csv, tsv, imagefolder, json_lines, parquet, parquet_folder, npz, tars, arrow]
)
def test_every_form_holds_the_same_images(tmp_path, write, split):
    path = write(tmp_path, split)
    assert is_own(str(path))
    found = find_items(path)
    assert len({item.name for item in found}) == len(ROWS)
    size = (lambda image: image.resize((9, 8))) if write is npz else lambda image: image
    expected = {
        (label, SPLITS[seed] if split else None, np.asarray(size(shapes.drawn(label, seed)).convert("RGBA")).tobytes())
        for label, seed in ROWS
    }
    assert {(item.label, item.split, pixels(item.read(), item.name).tobytes()) for item in found} == expected


def saved(path, column, labels, features):
    """Writes a folder like that of `save_to_disk`, with labels as their numbers."""
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table({"image": [b""] * len(labels), column: labels}).replace_schema_metadata(metadata)
    with pa.OSFile(str(path / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    return path


def test_numbers_of_classes_are_those_of_their_own_column(tmp_path):
    names = {"label": {"names": ["cat", "dog"]}, "tags": {"feature": {"names": ["wild"]}}}
    assert [item.label for item in find_items(saved(tmp_path, "label", [1, 0], names))] == ["dog", "cat"]
    # Names of another column say nothing about these.
    others = {"label": {}, "tags": names["tags"]}
    assert [item.label for item in find_items(saved(tmp_path, "label", [3, 1], others))] == ["3", "1"]
    with pytest.raises(UserError, match=r"row 1 of data.arrow has no label. Complete or remove it"):
        find_items(saved(tmp_path, "label", [-1, 0], names))
    assert [item.label for item in find_items(saved(tmp_path, "tags", [[-1], [0, -1]], names))] == [(), ("wild",)]
    for wrong in (-2, 2):
        with pytest.raises(UserError, match=rf"row 2 of data.arrow has the label {wrong}. Expected the number of one"):
            find_items(saved(tmp_path, "label", [0, wrong], names))


def from_hub(path, column, labels, features):
    """Writes a Parquet file like those of Hugging Face's hub, with labels as their numbers."""
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    images = [{"bytes": b"", "path": "0.png"}] * len(labels)
    table = pa.table({"image": images, column: labels}).replace_schema_metadata(metadata)
    pq.write_table(table, path / "hub.parquet", row_group_size=1)
    return path / "hub.parquet"


def test_a_parquet_file_names_its_classes(tmp_path):
    names = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "tags": [{"names": ["wild"]}]}
    assert [item.label for item in find_items(from_hub(tmp_path, "label", [1, 0], names))] == ["dog", "cat"]
    assert [item.label for item in find_items(from_hub(tmp_path, "tags", [[-1], [0, -1]], names))] == [(), ("wild",)]
    with pytest.raises(UserError, match=r"row 2 of hub\.parquet has no label\. Complete or remove it"):
        find_items(from_hub(tmp_path, "label", [0, -1], names))
    with pytest.raises(UserError, match=r"row 2 of hub\.parquet has the label 2\. Expected the number of one of 2"):
        find_items(from_hub(tmp_path, "label", [0, 2], names))
    # Names that are written out, and numbers that are no class labels, stay as they are.
    assert [item.label for item in find_items(from_hub(tmp_path, "label", ["0", "-1"], names))] == ["0", "-1"]
    for plain in ({"label": {"dtype": "int64", "_type": "Value"}}, {}, None):
        assert [item.label for item in find_items(from_hub(tmp_path, "label", [1, -1], plain))] == ["1", "-1"]


@pytest.mark.parametrize("label", [None, float("nan"), "", b""])
def test_missing_labels_are_no_classes(tmp_path, label):
    kind = pa.binary() if isinstance(label, bytes) else pa.float64() if isinstance(label, float) else pa.string()
    pq.write_table(pa.table({"image": [b""], "label": pa.array([label], kind)}), tmp_path / "a.parquet")
    paths = [tmp_path / "a.parquet"]
    if not isinstance(label, bytes):
        paths.append(a_tar(tmp_path / "a.tar", **{"0.png": b"", "0.json": json.dumps({"label": label}).encode()}))
    if label is not None:
        np.savez(tmp_path / "a.npz", x=np.zeros((1, 3, 3), np.uint8), y=[label])
        paths.append(tmp_path / "a.npz")
    for path in paths:
        with pytest.raises(UserError, match=r"(row 1 of a.parquet|a.tar:0.png|image 0) has no label"):
            find_items(path)


def test_names_of_classes_are_texts_of_one_line(tmp_path):
    labels = [b" cat", b"a\r\n b\n", b"caf\xe9"]
    pq.write_table(pa.table({"image": [b""] * 3, "label": labels}), tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 3, 3), np.uint8), y=labels)
    for path in (tmp_path / "a.parquet", tmp_path / "a.npz"):
        assert [item.label for item in find_items(path)] == ["cat", "a b", "caf\\xe9"]
    content = json.dumps({"label": [None, " cat", "a\nb"]}).encode()
    found = find_items(a_tar(tmp_path / "a.tar", **{"0.png": b"", "0.json": content}))
    assert [item.label for item in found] == [("cat", "a b")]
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/photos/caf\xe9 /\xe9.png"))
    file.parent.mkdir(parents=True)
    file.touch()
    assert [(item.label, item.name) for item in find_items(tmp_path / "photos")] == [
        ("caf\\xe9", "caf\\xe9 /\\xe9.png")
    ]


def test_groups_come_from_a_column_or_an_array(tmp_path):
    pq.write_table(pa.table(columns(False) | {"patient": [1, 1, 2, 2, 3, 3]}), tmp_path / "a.parquet")
    assert [item.group for item in find_items(tmp_path / "a.parquet", "patient")] == ["1", "1", "2", "2", "3", "3"]
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 3, 3), np.uint8), labels=[0, 1], patient=["a", "b"])
    assert [item.group for item in find_items(tmp_path / "a.npz", "patient")] == ["a", "b"]
    shapes.write(tmp_path / "folder", 1)
    (tmp_path / "a.csv").write_text("path,label,doctor,doctor\n0.png,a,1,2\n")
    for path in (tmp_path / "a.parquet", tmp_path / "a.npz", tmp_path / "a.csv", tmp_path / "folder"):
        with pytest.raises(UserError, match="doctor"):
            find_items(path, "doctor")


def test_folders_inside_a_class_may_have_the_name_of_one_split(tmp_path):
    for name in ("vehicle/0.png", "vehicle/train/1.png", "chart/bar/2.png", "chart/test/3.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [(item.label, item.split) for item in find_items(tmp_path)]
    assert found == [("chart", None)] * 2 + [("vehicle", None)] * 2


def test_images_of_other_formats_are_not_passed_over(tmp_path):
    for name in ("0.jfif", "1.HEIC", "2.pbm", "3.avif", "notes.txt"):
        (tmp_path / "photos" / "cat").mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / "cat" / name).touch()
    assert [Path(item.name).name for item in find_items(tmp_path / "photos")] == ["0.jfif", "1.HEIC", "2.pbm", "3.avif"]
    members = {"0.png": b"", "0.mask.png": b"", "0.cls": b"a"}
    assert len(find_items(a_tar(tmp_path / "a.tar", **members))) == 1
    with pytest.raises(UserError, match=r"img_1\.2\.jpg in .*a\.tar has a dot in its name"):
        find_items(a_tar(tmp_path / "a.tar", **members, **{"img_1.2.jpg": b"", "img_1.2.cls": b"a"}))


def test_a_link_to_a_missing_image_is_damaged_and_not_passed_over(tmp_path):
    shapes.write(tmp_path / "shapes", 1)
    for name, target in (("gone.png", "nowhere.png"), ("folder.png", tmp_path), ("same.png", "000.png")):
        (tmp_path / "shapes" / "circle" / name).symlink_to(target)
    items = find_items(tmp_path / "shapes")
    names = [item.name for item in items if item.label == "circle"]
    assert names == ["circle/000.png", "circle/gone.png", "circle/same.png"]
    assert survey(items).damaged == ["circle/gone.png cannot be read: No such file or directory."]


def test_images_without_a_group_are_alone(tmp_path):
    pq.write_table(pa.table(columns(False) | {"owner": ["a", None, "", "b", " b", "c"]}), tmp_path / "a.parquet")
    assert [item.group for item in find_items(tmp_path / "a.parquet", "owner")] == ["a", None, None, "b", "b", "c"]
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 3, 3), np.uint8), y=[0, 1, 2], owner=[1.5, np.nan, 1.5])
    assert [item.group for item in find_items(tmp_path / "a.npz", "owner")] == ["1.5", None, "1.5"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has none of the formats|there are no images"),
        ({"a/readme.txt": b""}, "there are no images"),
        ({"0.png": b"", "a/1.png": b""}, "is in no folder for its class"),
        ({"train/a/0.png": b"", "other/a/1.png": b""}, "another folder, other"),
        (
            {"a/Train/0.png": b"", "a/test/1.png": b""},
            r"a has folders for splits \(Train, test\). Expected .*/Train/a\.",
        ),
        (
            {"in/train/a/0.png": b"", "in/test/a/1.png": b"", "in/test/b/2.png": b""},
            r"in has folders for splits \(test, train\)\. It is the only folder in .*: name .*/in itself\.",
        ),
        (
            {"a/0.png": b"", "a/test/1.png": b"", "b/2.png": b""},
            r"a has images next to a folder for a split \(test\)\. Expected .*/test/a\.",
        ),
        ({"a.csv": b"file,kind\n0.png,a\n"}, "no column for the label.*It has: file, kind"),
        ({"a.csv": b"path,label\n0.png,\n"}, "row 1 of a.csv has no label"),
        ({"a.csv": b"path,label,split\n0.png,a,holdout\n"}, "'holdout'. Expected train, validation or test"),
        ({"a.csv": b"path,label,split\n0.png,a,\n"}, "row 1 of a.csv has no split. Expected train, validation or test"),
        (
            {"a.csv": b"path,label,fold\n0.png,a,3\n"},
            "names the split '3'. Expected train, validation or test. Correct it in the column fold, or rename",
        ),
        ({"a.csv": b"path,label,label\n0.png,a,b\n"}, "a.csv has more than one column named 'label'. Rename them"),
        ({"a.csv": b"path,label\n0.png\n"}, "a.csv cannot be read"),
        ({"a.parquet": b"PAR1"}, "a.parquet cannot be read"),
        ({"a.npz": b"PK"}, "a.npz cannot be read"),
        ({"a.tar": b"?" * 1024}, "a.tar is damaged"),
        ({"state.json": b"{"}, "state.json cannot be read"),
        ({"metadata.jsonl": b'{"file_name": "0.png", "text": "a"}'}, "no column for the label.*has: file_name, text"),
        ({"metadata.jsonl": b'{"file_name": "0.png", "label": 0}\n{'}, "line 2 of .*metadata.jsonl cannot be read"),
        ({"metadata.jsonl": b"[]"}, 'line 1 of .*metadata.jsonl is no object. Expected {"file_name": "1.jpg"'),
        (
            {"metadata.jsonl": b'{"file_name": "0.png", "label": "a"}\n{"file_name": "1.png", "label": 1}'},
            r'metadata.jsonl cannot be read: in row 1, label is "a", and in row 2 1\. Write values of one kind',
        ),
        (
            {"metadata.jsonl": b'{"file_name": "0.png", "label": [1]}\n{"file_name": "1.png", "label": ["a"]}'},
            "metadata.jsonl cannot be read: label: Could not convert",
        ),
        (
            {"metadata.jsonl": b'{"file_name": "0.png", "label": 1180591620717411303424}'},
            "metadata.jsonl cannot be read: label: Python int too large",
        ),
        (
            {"metadata.jsonl": b'{"file_name": "0.png", "label": {"a": 1}}'},
            r'row 1 of metadata.jsonl has the label {"a": 1}\. Expected a text, a number, or a list of them',
        ),
        (
            {"metadata.jsonl": b'{"file_name": "0.png", "label": [["a"]]}'},
            r'row 1 of metadata.jsonl has the label \[\["a"\]\]\. Expected a text',
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    path = tmp_path / next(iter(files)) if len(files) == 1 and "/" not in next(iter(files)) else tmp_path
    with pytest.raises(UserError, match=message):
        find_items(tmp_path if path.name in ("state.json", "metadata.jsonl") else path)


def test_nothing_there_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"does not exist. Expected NumPy arrays"):
        find_items(tmp_path / "nothing")


@pytest.mark.parametrize(
    "arrays", [{"x": [1]}, {"x": np.zeros((2, 3, 3)), "y": [0, 1]}, {"x": np.zeros((2, 3, 3), np.uint8), "y": [0]}]
)
def test_arrays_must_be_images_and_labels(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UserError, match=r"It has: x|has: x"):
        find_items(tmp_path / "a.npz")


def named(path, rows, separator=None):
    (path / "a.csv").write_text("path,tags\n" + "".join(f"{name},{tags}\n" for name, tags in rows))
    return [(item.name, item.label) for item in find_items(path / "a.csv", separator=separator)]


def test_an_image_may_have_any_number_of_classes(tmp_path):
    rows = [("0.png", "cat|dog"), ("1.png", "dog"), ("2.png", "")]
    expected = [("0.png", ("cat", "dog")), ("1.png", ("dog",)), ("row 3 of a.csv", ())]
    assert named(tmp_path, rows, "|") == expected
    with pytest.raises(UserError, match=r"row 3 of a\.csv has no label"):
        named(tmp_path, rows)
    table = pa.table({"image": [b"", b"", b""], "labels": [["cat", "dog"], ["dog"], []]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert [item.label for item in find_items(tmp_path / "a.parquet")] == [("cat", "dog"), ("dog",), ()]
    # What Hugging Face has saved holds numbers of classes.
    features = {"labels": {"feature": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "_type": "List"}}
    folder = saved(tmp_path, "labels", [[0, 1], []], features)
    assert [item.label for item in find_items(folder)] == [("cat", "dog"), ()]


def test_classes_of_folders_and_archives_are_separated_too(tmp_path):
    for name in ("cat,dog", "dog"):
        (tmp_path / "folder" / name).mkdir(parents=True)
        (tmp_path / "folder" / name / "0.png").touch()
    assert [item.label for item in find_items(tmp_path / "folder", None, ",")] == [("cat", "dog"), ("dog",)]
    files = {"0.png": b"", "0.json": b'{"label": ["cat", "dog"]}', "1.png": b"", "1.cls": b"a"}
    assert [item.label for item in find_items(a_tar(tmp_path / "a.tar", **files))] == [("cat", "dog"), ("a",)]

"""`highway predict` for the rows of a table, here and at an endpoint."""

import json
import re
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.inference import tables
from pipelines.verbs.cli import main
from serving.client import Client
from serving.engine import backends
from serving.engine.settings import Settings
from serving.http.app import make_app
from serving.schemas import Answer, Guess, Prediction, TableMetadata, VersionMetadata
from tests import table_model, tiny_model
from tests.endpoint import LoadedClient
from tests.unit.serving.conftest import NoChildren

ROWS = "id,rooms,age,city,price,sold\n1,4,10,Rome,310,yes\n2,2,30,Paris,170,later\n3,,5,,80,no\n4,1,0,Oslo,,\n"
NUMBERS = np.float32([[4, 10, 1], [2, 30, 0], [np.nan, 5, -1], [1, 0, 2]])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A repository, read only."""
    root = tmp_path_factory.mktemp("models")
    table_model.write(root / "houses" / "1", regression=True)
    table_model.write(root / "sales" / "1", gates=False)
    tiny_model.write(root / "tiny" / "1")
    return root


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return path


def cells(text):
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]


def test_classes_are_shown_with_their_probability_and_the_accuracy(models, rows, capsys):
    assert main(["predict", str(models / "sales"), str(rows), "--top", "2"]) == 0
    captured = capsys.readouterr()
    expected = table_model.expected(NUMBERS)["probabilities"]
    first, *others = cells(captured.out)
    best = [table_model.LABELS[index] for index in expected.argmax(-1)]
    assert [row[1] for row in (first, *others)] == best
    assert first[2] == f"{expected[0].max():.1%}"
    assert [row[-1] for row in (first, *others)] == ["yes", "later", "no", ""]
    right = np.mean([one == true for one, true in zip(best, ["yes", "later", "no"], strict=False)])
    assert f"4 rows; accuracy {right:.1%} on 3 rows with a sold\n" in captured.out
    assert captured.err == f"{models / 'sales' / '1'} is the newest version of {models / 'sales'}\n"


def test_unknown_classes_do_not_count_as_wrong(models, rows, capsys):
    assert main(["predict", str(models / "sales" / "1"), str(rows)]) == 0
    (score,) = re.findall(r"accuracy [\d.]+%", capsys.readouterr().out)
    rows.write_text(f"{ROWS}5,1,0,Oslo,,perhaps\n6,1,0,Oslo,,perhaps\n")
    assert main(["predict", str(models / "sales" / "1"), str(rows)]) == 0
    captured = capsys.readouterr()
    assert f"6 rows; {score} on 3 rows with a known sold\n" in captured.out
    said = "sold has classes that the model was not trained on (perhaps) in 2 rows, which count in no score.\n"
    assert captured.err == said


def test_values_are_shown_with_their_error(models, rows, capsys):
    assert main(["predict", str(models / "houses" / "1"), str(rows)]) == 0
    captured = capsys.readouterr()
    assert cells(captured.out) == [["1", "300", "310"], ["2", "170", "170"], ["3", "85", "80"], ["4", "170", ""]]
    assert "4 rows; MAE 5, R² 0.995 on 3 rows with a price\n" in captured.out
    assert captured.err == ""


def test_json_is_one_object_per_row(models, rows, capsys):
    assert main(["predict", str(models / "houses" / "1"), str(rows), "--format", "json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [{"row": place + 1, "value": value} for place, value in enumerate([300, 170, 85, 170])]
    assert main(["predict", str(models / "sales" / "1"), str(rows), "--format", "json", "--top", "1"]) == 0
    (first, *_) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (first["row"], len(first["top"])) == (1, 1)


def test_many_rows_are_counted_and_the_first_are_shown(models, tmp_path, capsys):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"rooms": [1.0] * 20_000, "age": [0] * 20_000, "city": ["Bonn"] * 20_000}), path)
    assert main(["predict", str(models / "houses" / "1"), str(path)]) == 0
    captured = capsys.readouterr()
    assert len(cells(captured.out)) == tables.SHOWN
    assert captured.out.endswith("\n20,000 rows, of which the first 20 are shown\n")
    assert captured.err == "city has unknown categories (Bonn) in 20,000 rows, which count as missing.\n"


def test_out_writes_classes_as_for_images(models, rows, tmp_path, capsys):
    out = tmp_path / "out.parquet"
    assert main(["predict", str(models / "sales" / "1"), str(rows), "--out", str(out), "--top", "2"]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 4 rows; accuracy ")
    found = pq.read_table(out)
    assert found.column_names == ["row", "label", "probability", "top", "probabilities", "true"]
    expected = table_model.expected(NUMBERS)["probabilities"]
    np.testing.assert_allclose(found["probabilities"].to_pylist(), expected, atol=1e-6)
    assert found["label"].to_pylist() == [table_model.LABELS[index] for index in expected.argmax(-1)]
    assert {len(row) for row in found["top"].to_pylist()} == {2}
    assert found["row"].to_pylist() == [1, 2, 3, 4]
    assert found["true"].to_pylist() == ["yes", "later", "no", None]
    assert found.schema.metadata[b"target"] == b"sold"


def test_out_writes_values_and_gates(models, rows, tmp_path):
    out = tmp_path / "out.parquet"
    assert main(["predict", str(models / "houses" / "1"), str(rows), "--out", str(out), "--explain"]) == 0
    found = pq.read_table(out)
    assert found.column_names == ["row", "value", "gate_means", "true"]
    assert (found["value"].to_pylist(), found["true"].to_pylist()) == ([300, 170, 85, 170], [310, 170, 80, None])
    np.testing.assert_allclose(
        found["gate_means"].to_pylist(), table_model.expected(NUMBERS, True)["gate_means"], atol=1e-6
    )
    assert found.schema.metadata[b"layers"] == b"first\nsecond"


@pytest.mark.parametrize(
    "case",
    [
        (["tiny", "rows.csv"], "takes images, not tables. Name image files, folders or tar files; images, or paths"),
        (["houses", "a.png"], "takes rows of a table, not images. Give it a file that ends in .csv, .tsv, .parquet."),
        (["houses", "a.png", "--out", "out.parquet"], "takes rows of a table, not images"),
        (["houses", "rows.csv", "a.png"], "rows.csv is a table. Tables are predicted one at a time"),
        (["houses", "nothing.csv"], "there is no table nothing.csv"),
        (["nothing", "rows.csv"], "there is no model"),
        (["houses", "few.csv"], "few.csv lacks the columns age, city that the model takes. It has: rooms."),
        (
            ["sales", "rows.csv", "--out", "out.parquet", "--explain"],
            "was exported without its gates, or its net has no highway layers",
        ),
        (["houses", "rows.csv", "--out", "out.txt"], "must name a file that ends in .parquet"),
        (["houses", "rows.csv", "--out", "there.parquet"], "there.parquet exists"),
        (["houses", "rows.csv", "--url", "http://127.0.0.1:1"], "cannot be reached"),
    ],
)
@pytest.mark.usefixtures("rows")
def test_errors_are_one_message_and_leave_nothing(models, tmp_path, monkeypatch, capsys, case):
    words, said = case
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("serving.client.time.sleep", lambda _: None)
    for name, content in (("a.png", b"x"), ("few.csv", b"rooms\n1\n"), ("there.parquet", b"")):
        (tmp_path / name).write_bytes(content)
    before = sorted(tmp_path.iterdir())
    model, *others = words
    if "--url" not in words:
        model = str(models / model)
    assert main(["predict", model, *others]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""
    assert sorted(tmp_path.iterdir()) == before


# More classes than an endpoint returns.
CODES = tuple(map(str, range(1002)))


class FakeClient:
    """An endpoint with a regression, three classifiers and a model of images, of which version 3 answers."""

    asked: list

    def __init__(self, url, key):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def metadata(self, model, *, version, label):
        FakeClient.asked.append((version, label))
        table = partial(TableMetadata, columns=table_model.COLUMNS)
        dated = [{**column, "date": "day" if column["name"] == "age" else None} for column in table_model.COLUMNS]
        labels = {"classes": table_model.LABELS, "multi_label": True, "label_separator": "|"}
        served = {
            "houses": table(target="price", classes=()),
            "old": table(target="price"),
            "sales": table(target="sold", classes=table_model.LABELS),
            "tags": TableMetadata(columns=dated, target="sold", **labels),
            "codes": table(target="code", classes=CODES),
            "tiny": TableMetadata(),
        }
        return VersionMetadata(model_spec={"name": model, "version": 3}, metadata=served[model])

    def predict(self, model, *, rows, version, top):
        FakeClient.asked.append((len(rows), version))
        probabilities = (
            {"yes": 0.9, "later": 0.8, "no": 0.1} if model == "tags" else {"yes": 0.5, "no": 0.3, "later": 0.2}
        )
        if model == "codes":
            assert top <= 1000
            probabilities = dict.fromkeys(CODES[::-1], 1 / len(CODES))
        guesses = tuple(Guess(label=name, probability=one) for name, one in probabilities.items())
        given = [Prediction(value=row["rooms"]) if model == "houses" else Prediction(top=guesses[:top]) for row in rows]
        return Answer(model=model, version=3, predictions=tuple(given))


@pytest.fixture
def endpoint(monkeypatch):
    FakeClient.asked = []
    monkeypatch.setattr(tables, "Client", FakeClient)
    return FakeClient.asked


def test_an_endpoint_predicts_in_parts_by_one_version(endpoint, tmp_path, capsys):
    path = tmp_path / "rows.csv"
    path.write_text("rooms,age,city,other\n" + "".join(f"{number},1,Rome,x\n" for number in range(300)))
    words = ["predict", "houses", str(path), "--url", "http://here", "--label", "stable", "--format", "json"]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert [json.loads(line)["value"] for line in captured.out.splitlines()] == list(range(300))
    assert captured.err == "houses version 3 answered\n"
    assert endpoint == [(None, "stable"), (128, 3), (128, 3), (44, 3)]


def test_the_classes_of_an_endpoint_are_scored(endpoint, rows, capsys):
    assert main(["predict", "sales", str(rows), "--url", "http://here", "--top", "1"]) == 0
    out = capsys.readouterr().out
    assert {row[1] for row in cells(out)} == {"yes"}
    assert "accuracy 33.3% on 3 rows" in out


def test_an_endpoint_of_an_earlier_version_is_named(endpoint, rows, capsys):
    assert main(["predict", "old", str(rows), "--url", "http://here"]) == 2
    said = "http://here does not say which classes the model 'old' has. Update highway-keras there."
    assert said in capsys.readouterr().err


def test_an_endpoint_is_asked_for_no_more_classes_than_it_returns(endpoint, rows, capsys):
    words = ["predict", "codes", str(rows), "--url", "http://here", "--format", "json"]
    assert main(words) == 0
    (first, *_) = map(json.loads, capsys.readouterr().out.splitlines())
    assert {one["label"] for one in first["top"]} <= {*CODES[2:]}
    assert main([*words, "--top", "1001"]) == 2
    assert "with --url, --top must be at most 1,000. Received: 1001" in capsys.readouterr().err


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """An endpoint, and its repository, with two versions of a model that have other columns and classes; read only."""
    root = tmp_path_factory.mktemp("versions")
    table_model.write(root / "sales" / "1")
    with pytest.MonkeyPatch.context() as patch:
        columns = [table_model.COLUMNS[1], {"name": "city", "categories": ["Oslo", "Rome"]}, table_model.COLUMNS[0]]
        patch.setattr(table_model, "COLUMNS", columns)
        patch.setattr(table_model, "LABELS", ("yes", "perhaps", "no"))
        patch.setattr(table_model, "ROWS", np.float32([[4, 1, 10], [2, 0, 30], [1, -1, 0]]))
        patch.setattr(table_model, "CLASSES", np.array([0, 1, 2]))
        table_model.write(root / "sales" / "2")
    (root / "sales" / "release.json").write_text('{"versions": [1, 2], "labels": {"stable": 1}}')
    tiny_model.write(root / "tiny" / "1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "ChildProcesses", NoChildren)
        with LoadedClient(make_app(Settings(root))) as loaded:
            yield loaded, root


@pytest.fixture
def served(versions, monkeypatch):
    """The folder of that model, at http://localhost."""
    endpoint, root = versions
    monkeypatch.setattr(tables, "Client", partial(Client, transport=endpoint._transport))
    return root / "sales"


@pytest.mark.parametrize(("words", "version"), [((), 2), (("--version", "1"), 1), (("--label", "stable"), 1)])
def test_rows_are_those_of_the_version_that_predicts(served, rows, capsys, words, version):
    form = [str(rows), "--format", "json"]
    assert main(["predict", str(served / str(version)), *form]) == 0
    here = [json.loads(line)["top"] for line in capsys.readouterr().out.splitlines()]
    assert main(["predict", "sales", *form, "--url", "http://localhost", *words]) == 0
    captured = capsys.readouterr()
    there = [json.loads(line)["top"] for line in captured.out.splitlines()]
    assert captured.err.startswith(f"sales version {version} answered\n")
    for one, other in zip(there, here, strict=True):
        assert [guess["label"] for guess in one] == [guess["label"] for guess in other]
        assert [guess["probability"] for guess in one] == pytest.approx([guess["probability"] for guess in other])


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("tiny", (), "takes images, not tables"),
        ("none", (), "answered 404: there is no model 'none'. Served are: sales, tiny."),
        ("sales", ("--version", "3"), "answered 404: version 3 of model 'sales' is not served. Served versions: 1, 2."),
        ("sales", ("--label", "canary"), "answered 404: model 'sales' has no label 'canary'. It has: stable."),
    ],
)
@pytest.mark.usefixtures("served")
def test_an_endpoint_without_the_model_is_reported(rows, capsys, name, words, said):
    assert main(["predict", name, str(rows), "--url", "http://localhost", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture(scope="module")
def tags(tmp_path_factory):
    """A model whose rows have any number of classes, with a column of dates; read only."""
    return table_model.write(tmp_path_factory.mktemp("several") / "tags" / "1", multi_label=True, age="day")


TAGGED = "rooms,age,city,sold\n4,1970-01-11,Rome,later|yes\n2.1,1970-01-01,Oslo,\n0,,,later|other\n"


def test_any_number_of_classes_are_shown_and_scored(tags, endpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    path = tmp_path / "rows.csv"
    path.write_text(TAGGED)
    assert main(["predict", str(tags), str(path)]) == 0
    out = capsys.readouterr().out
    expected = table_model.expected(np.float32([[4, 10, 1], [2.1, 0, 2], [0, 0, -1]]), multi_label=True)
    probabilities = expected["probabilities"]
    present = [[table_model.LABELS[place] for place in np.argsort(-row) if row[place] > 0.5] for row in probabilities]
    assert [row[1] for row in cells(out)] == [", ".join(names) for names in present]
    assert [row[-1] for row in cells(out)] == ["later, yes", "none", "later"]
    truth = np.array([[0, 1, 1], [0, 0, 0], [0, 1, 0]]) == 1
    right = (probabilities > 0.5) == truth
    assert f"3 rows; labels right {right.mean():.1%}, all of a row for {right.all(1).mean():.1%}\n" in out
    assert main(["predict", "tags", str(path), "--url", "http://here"]) == 0
    assert "3 rows; labels right 66.7%, all of a row for 33.3%\n" in capsys.readouterr().out
    assert main(["predict", str(tags), str(path), "--format", "json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["labels"] for one in found] == present
    out = tmp_path / "out.parquet"
    assert main(["predict", str(tags), str(path), "--out", str(out)]) == 0
    written = pq.read_table(out)
    assert written["labels"].to_pylist() == present
    assert written["true"].to_pylist() == [["later", "yes"], [], ["later"]]
    assert capsys.readouterr().out.startswith(f"{out}: 3 rows; labels right ")


class Killed(BaseException):
    """Ends a job between two batches."""


def test_an_interrupted_file_is_resumed(models, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tables, "BATCH", 10)
    monkeypatch.setattr("pipelines.inference.job.GROUP", 20)
    path, out = tmp_path / "rows.csv", tmp_path / "out.parquet"
    lines = [f"{number % 9},{number},Rome,{number % 2}" for number in range(95)]
    path.write_text("\n".join(["rooms,age,city,price", *lines]) + "\n")
    words = ["predict", str(models / "houses" / "1"), str(path), "--out", str(out)]
    assert main([*words[:-1], str(tmp_path / "whole.parquet")]) == 0
    score = capsys.readouterr().out.partition(": 95 rows; ")[2].partition(";")[0]
    work, done = tables.batches, []

    def killed(*arguments):
        for batch in work(*arguments):
            if len(done) == 6:
                raise Killed
            done.append(len(batch))
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(tables, "batches", killed)
        with pytest.raises(Killed):
            main(words)
    assert not out.exists()
    # Another table, or other options, would not continue this file.
    assert main([*words, "--explain"]) == 2
    assert "was begun by another job: explain was False and is now True" in capsys.readouterr().err
    path.write_text(path.read_text() + "1,1,Rome,1\n")
    assert main(words) == 2
    assert "rows was rows.csv, " in capsys.readouterr().err
    path.write_text("\n".join(["rooms,age,city,price", *lines]) + "\n")
    assert main(words) == 0
    # The first row of an attempt is predicted once more, for the columns of the file.
    assert capsys.readouterr().out.startswith(f"{out}: 95 rows (50 by earlier attempts); {score}; ")
    assert pq.read_table(out).equals(pq.read_table(tmp_path / "whole.parquet"))
    assert pq.read_table(out)["row"].to_pylist() == list(range(1, 96))
    assert main(words) == 0
    assert capsys.readouterr().out == f"{out} is already complete, with 95 rows. Remove it to start over.\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out.parquet", "rows.csv", "whole.parquet"]

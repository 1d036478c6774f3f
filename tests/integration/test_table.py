"""A table of the user's own through the verbs: from a CSV file to exported files that compute the same."""

import json
import re
import shutil

import numpy as np
import pytest

from pipelines.core import run as runs
from pipelines.data import preprocess, sources
from pipelines.export import onnx_model
from pipelines.verbs.cli import main
from serving import manifest
from tests import houses

NET = (
    "--model.depth",
    "3",
    "--model.width",
    "16",
    "--epochs",
    "12",
    "--batch-size",
    "20",
    "--optimizer.learning-rate",
    "0.01",
)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def trained(shared, tmp_path_factory):
    """A folder with the table, and runs that predict the price and the verdict."""

    def make(folder):
        houses.write(folder / "houses.csv")
        with pytest.MonkeyPatch.context() as patch:
            # Runs keep the absolute path of their data, and `folder` is renamed.
            patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("tables")))
            patch.chdir(folder)
            for target in ("price", "verdict"):
                words = ["train", "table", "--data", "houses.csv", "--target", target, "--run", target, *NET]
                assert main(words) == 0

    return shared("houses", make)


@pytest.fixture
def home(trained, tmp_path):
    """A copy of that folder, which the test may change; the prepared data stay where they are."""
    for name in ("houses.csv", "price", "verdict"):
        copy = shutil.copytree if (trained / name).is_dir() else shutil.copy
        copy(trained / name, tmp_path / name)
    return tmp_path


def test_the_data_are_described(tmp_path, monkeypatch, capsys):
    # Nothing is written, so that the folder may be read-only; the superuser could write to it nevertheless.
    monkeypatch.setattr("pipelines.verbs.data.check_writable", pytest.fail)
    houses.write(tmp_path / "houses.csv")
    assert main(["data", "show", "houses.csv", "--target", "price"]) == 0
    said = capsys.readouterr().out
    assert re.search("^column +kind +missing +values", said, re.MULTILINE)
    for line in ("area", "days since 1970", "city", "target: price", "task: regression, because price"):
        assert line in said
    assert "left out: id is text with a different value in nearly every row (200), like an identifier" in said
    assert "left out: country is the same in every row" in said
    assert max(map(len, said.splitlines()[:7])) <= 80
    assert main(["data", "show", "houses.csv", "--target", "verdict"]) == 0
    said = capsys.readouterr().out
    assert "task: classification, because verdict is not a number" in said
    assert "classes: cheap " in said


def test_a_regression_is_evaluated_in_the_unit_of_its_target(home, capsys):
    assert main(["evaluate", "price"]) == 0
    said = capsys.readouterr().out
    assert "next: highway export price" in said
    run = runs.open_run(home / "price")
    data = run.record.data
    assert (data.labels, data.target) == ((), "price")
    assert [column.name for column in data.columns] == ["area", "rooms", "built", "city", "garden", "verdict"]
    found = json.loads((home / "price" / "evaluation.json").read_text())
    test, train = (sources.load(run.config.data, split) for split in ("test", "train"))
    fitted = preprocess.load(home / "price" / "preprocess.npz")
    values = preprocess.in_units(fitted, runs.load_model(run)(preprocess.apply(fitted, test.images), training=False))
    assert found["mae"] == pytest.approx(np.abs(values - test.labels).mean(), rel=1e-4)
    assert found["training_mean"] == pytest.approx(train.labels.mean(), rel=1e-5)
    assert found["r2"] > 0.5
    assert found["mae"] > 1
    # In training, the loss is that of standardized targets.
    assert run.record.metrics["val_loss"] < 1
    assert (home / "price" / "figures" / "values.png").read_bytes().startswith(b"\x89PNG")
    report = (home / "price" / "report.md").read_text()
    assert "](figures/values.png)" in report
    assert "in standard deviations" in report


def test_a_classification_is_evaluated_by_class(home, capsys):
    assert main(["evaluate", "verdict"]) == 0
    assert "rows" in capsys.readouterr().out
    run = runs.open_run(home / "verdict")
    assert run.record.data.labels == ("cheap", "dear", "fair")
    assert json.loads((home / "verdict" / "evaluation.json").read_text())["accuracy"] > 0.5
    figures = home / "verdict" / "figures"
    assert (figures / "confusion.png").exists()
    assert not (figures / "errors.png").exists()
    assert main(["evaluate", "verdict", "--mirror"]) == 2
    assert "--mirror is for images" in capsys.readouterr().err
    assert main(["evaluate", "verdict", "--data", "mnist"]) == 2
    assert "was trained on a table. Expected a CSV, TSV or Parquet file" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["price", "verdict"])
def test_other_tables_are_evaluated_with_the_same_columns(home, capsys, target):
    houses.write(home / "newer.csv", 40, seed=1)
    assert main(["evaluate", target, "--data", "newer.csv"]) == 0
    folder = home / target / "evaluations" / "newer_csv"
    found = json.loads((folder / "evaluation.json").read_text())
    assert (found["data"], found["split"], found["count"]) == ("newer", "all", 40)
    assert found["r2" if target == "price" else "accuracy"] > 0.4
    assert (folder / "figures" / ("values.png" if target == "price" else "confusion.png")).exists()
    text = (home / "newer.csv").read_text()
    for old, new, message in (
        ("rooms", "floors", "newer.csv lacks the column rooms"),
        (",here,", ",here,x" if target == "price" else ",here,", "must be a number" if target == "price" else None),
        (r",(cheap|dear|fair)\n", ",ruin\n", "no row with a verdict that the net" if target == "verdict" else None),
    ):
        (home / "newer.csv").write_text(re.sub(old, new, text))
        assert main(["evaluate", target, "--data", "newer.csv"]) == (2 if message else 0)
        assert (message or "") in capsys.readouterr().err


def test_a_class_that_is_new_is_named_and_left_out(home, capsys):
    text = houses.write(home / "newer.csv", 40, seed=1).read_text()
    (home / "newer.csv").write_text(text.replace(",dear", ",ruin"))
    capsys.readouterr()
    assert main(["evaluate", "verdict", "--data", "newer.csv"]) == 0
    ruins = text.count(",dear")
    said = f"verdict has classes that the model was not trained on (ruin) in {ruins} rows, which count in no score."
    assert said in capsys.readouterr().out
    found = json.loads((home / "verdict" / "evaluations" / "newer_csv" / "evaluation.json").read_text())
    assert (found["count"], found["classes"][1]["count"]) == (40 - ruins, 0)


def test_evaluate_and_predict_read_texts_like_numbers_alike(tmp_path, capsys):
    generator = np.random.default_rng(0)
    codes = np.array(["007", "012", "A1", "B2"] * 60)
    effects = {"007": -5, "012": 5, "A1": 1, "B2": 0}
    kinds = {"007": "01", "012": "02", "A1": "1a", "B2": "1a"}
    lines = [f"{code},{effects[code] + generator.normal() / 10:.3f},{kinds[code]}\n" for code in codes]
    head = "code,price,kind\n"
    (tmp_path / "all.csv").write_text(head + "".join(lines))
    # Every code and every class in it reads like a number.
    (tmp_path / "new.csv").write_text(head + "".join(line for line in lines if line.startswith("0")))
    for target, column in (("price", "rmse"), ("kind", "accuracy")):
        assert main(["train", "table", "--data", "all.csv", "--target", target, "--run", target, *NET]) == 0
        assert main(["export", target]) == 0
        capsys.readouterr()
        assert main(["evaluate", target, "--data", "new.csv"]) == 0
        assert main(["predict", f"models/{target}", "new.csv"]) == 0
        said = capsys.readouterr()
        assert "unknown" not in said.out + said.err
        assert "not trained on" not in said.out + said.err
        found = json.loads((tmp_path / target / "evaluations" / "new_csv" / "evaluation.json").read_text())
        assert found["count"] == 120
        if target == "price":
            assert found[column] < 2
            assert f"MAE {found['mae']:.4g}, R² {found['r2']:.3f}" in said.out
        else:
            assert found[column] > 0.9
            assert f"accuracy {found[column]:.1%}" in said.out
    # Another file of the same name gets a folder of its own.
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "new.csv").write_text(head + lines[0])
    for path in ("later/new.csv", "new.csv", "later/new.csv"):
        assert main(["evaluate", "price", "--data", path]) == 0
    folders = (tmp_path / "price" / "evaluations").iterdir()
    counts = {folder.name: json.loads((folder / "evaluation.json").read_text())["count"] for folder in folders}
    assert counts == {"new_csv": 120, "new_csv_2": 1}


@pytest.mark.parametrize("target", ["price", pytest.param("verdict", marks=pytest.mark.slow)])
def test_exported_files_compute_the_same(home, capsys, target):
    assert main(["evaluate", target]) == 0
    calibrate = ["--calibrate"] if target == "verdict" else []
    assert main(["export", target, *calibrate]) == 0
    assert f"next: highway predict models/{target}/1 ROWS.csv" in capsys.readouterr().out
    folder = home / "models" / target / "1"
    content = manifest.read(folder)
    assert (content.format, content.target, content.pictures) == (2, target, None)
    run = runs.open_run(home / target)
    assert [(one.name, one.categories) for one in content.columns] == [
        (one.name, one.categories) for one in run.record.data.columns
    ]
    assert [one.date for one in content.columns[:3]] == [None, None, "day"]
    assert not (folder / "picture.onnx").exists()
    assert (folder / "labels.txt").exists() == (target == "verdict")
    assert content.run.test["count"] == run.record.data.counts["test"]
    rows = sources.load(run.config.data, "validation").images
    assert np.isnan(rows).any()
    fitted = preprocess.load(home / target / "preprocess.npz")
    outputs = runs.load_model(run)(preprocess.apply(fitted, rows), training=False).numpy()
    found = onnx_model.predictor(folder / manifest.ONNX)(rows)
    assert found["gate_means"].shape == (len(rows), 2)
    if target == "price":
        np.testing.assert_allclose(found["value"], preprocess.in_units(fitted, outputs), rtol=1e-4)
        assert content.parity.tolerance > 1e-3
    else:
        assert content.temperature > 0
        assert (found["probabilities"].argmax(1) == outputs.argmax(1)).all()
    with np.load(folder / manifest.REFERENCE) as kept:
        others = {"value", "targets"} if target == "price" else {"probabilities", "classes"}
        assert set(kept) == {"rows", "gate_means"} | others
    assert main(["export", str(folder), "--verify"]) == 0
    assert "all files are unchanged" in capsys.readouterr().out
    # A table with other columns would silently change what clients have to send.
    other = json.loads((folder / manifest.NAME).read_text())
    other["input"]["columns"][1]["name"] = "floors"
    (folder / manifest.NAME).write_text(json.dumps(other))
    assert main(["export", target]) == 2
    assert "with other columns. Name another folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "prize"], "has no column 'prize'. Did you mean 'price'?"),
        (["--target", "price", "--image-size", "64"], "is a table of numbers, without images for --image-size"),
        (["--target", "verdict", "--augment.mirror"], "is a table, without images for --augment.mirror"),
        (["--target", "verdict", "--augment.mixup", "0.2"], "is a table, without images for --augment.mixup"),
        (["--target", "price", "--label-smoothing", "0.1"], "for --label-smoothing"),
        (["--target", "price", "--preprocess.scale", "0.5"], "columns of houses are standardized"),
        (["--data", "nowhere.csv"], "there is no file nowhere.csv. Name your table: --data FILE --target COLUMN"),
        (["--data", "fama_french", "--target", "price"], "fama_french is not a table of numbers. Leave out --target"),
    ],
)
def test_options_that_do_not_apply_are_refused(tmp_path, fama_french, capsys, words, message):
    houses.write(tmp_path / "houses.csv", 60)
    assert main(["train", "table", "--data", "houses.csv", "--data-dir", str(fama_french), *NET, *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verdict", "--pictures", "natural"], "--pictures is for images"),
        (["verdict", "--int8"], "--int8 is for images"),
        (["price", "--calibrate"], "--calibrate is for probabilities"),
    ],
)
def test_options_of_an_export_that_do_not_apply_are_refused(home, capsys, words, message):
    assert main(["export", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (home / "models").exists()


@pytest.mark.parametrize("verb", ["train", "tune"])
def test_the_table_must_be_named(tmp_path, capsys, verb):
    assert main([verb, "table"]) == 2
    said = "there is no file table.csv. Name your table: --data FILE --target COLUMN"
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_net_of_a_table_is_analyzed(home):
    for target in ("price", "verdict"):
        assert main(["analyze", target]) == 0
        with np.load(home / target / "analysis" / "arrays.npz") as arrays:
            assert arrays["lesion_loss"].shape == (2,)
            assert arrays["lesion_intact_loss"] < 1


@pytest.mark.slow
@pytest.mark.parametrize("target", ["price", "verdict"])
def test_fit_makes_a_model_of_a_table(tmp_path, capsys, target):
    houses.write(tmp_path / "houses.csv")
    assert main(["fit", "houses.csv", "--target", target, "--minutes", "0.2"]) == 0
    said = capsys.readouterr().out
    assert "chosen: batch size " in said
    assert ("mean absolute error" if target == "price" else "test rows right") in said
    content = manifest.read(tmp_path / "models" / "houses" / "1")
    assert content.target == target
    # There are too few validation rows to calibrate classes.
    assert content.temperature is None
    assert main(["fit", "houses.csv", "--target", target]) == 2


@pytest.mark.slow
def test_a_search_over_a_table_runs(tmp_path):
    houses.write(tmp_path / "houses.csv")
    words = ["tune", "table", "--data", "houses.csv", "--target", "verdict", "--trials", "2", "--epochs", "2"]
    assert main([*words, "--to", "search", "--batch-size", "20"]) == 0
    assert (tmp_path / "search" / "best.json").exists()

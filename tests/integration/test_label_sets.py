"""Images and rows with any number of classes through the verbs: from a CSV file to the answers of the endpoint."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipelines.core import run as runs
from pipelines.data import preprocess, sources
from pipelines.training import metrics_file, multi_label
from pipelines.verbs.cli import main
from serving import manifest
from serving.engine.settings import Settings
from serving.http.app import make_app
from tests.endpoint import LoadedClient

CORNERS = ("ne", "nw", "se", "sw")
DATA = ("--label-separator", "|", "--image-size", "8")
NET = ("--model.depth", "4", "--model.width", "16", "--epochs", "8", "--batch-size", "20", "--precision", "float32")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def trained(shared, tmp_path_factory):
    """A folder with images and a run that was trained on them."""

    def make(folder):
        table = write_images(folder / "images", 300)
        with pytest.MonkeyPatch.context() as patch:
            # Runs keep the absolute path of their data, and `folder` is renamed.
            patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("corners")))
            words = ["train", "mnist_dense_10", "--data", str(table), *DATA, *NET, "--optimizer.learning-rate", "0.1"]
            assert main([*words, "--run", str(folder / "run")]) == 0

    return shared("corners", make)


@pytest.fixture
def home(trained, tmp_path):
    """A copy of that folder, which the test may change; the prepared data stay where they are."""
    return shutil.copytree(trained, tmp_path, dirs_exist_ok=True)


def write_images(folder, count, seed=0):
    """Writes grey images, each bright in any number of its corners, which a CSV file names."""
    random, lines = np.random.default_rng(seed), ["path,tags"]
    folder.mkdir()
    for number in range(count):
        present = random.random(4) < 0.4
        pixels = random.integers(0, 100, (8, 8))
        for corner, bright in zip(CORNERS, present, strict=True):
            if bright:
                rows = slice(0, 4) if corner[0] == "n" else slice(4, 8)
                pixels[rows, slice(4, 8) if corner[1] == "e" else slice(0, 4)] += 120
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number:03}.png")
        lines.append(f"{number:03}.png,{'|'.join(np.array(CORNERS)[present])}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return folder / "table.csv"


def test_images_with_any_number_of_classes_are_described_and_checked(tmp_path, capsys):
    table = str(write_images(tmp_path / "images", 40))
    assert main(["data", "show", table, *DATA]) == 0
    said = capsys.readouterr().out
    assert "note: images without a class: " in said
    assert [line.split()[0] for line in said.splitlines()[1:5]] == list(CORNERS)
    for option in ("--class-weights", "--sampling"):
        assert main(["train", "mnist_dense_10", "--data", table, *DATA, *NET, option, "balanced"]) == 2
        assert f"{option} balanced is for classes, and table has any number of them for each" in capsys.readouterr().err


@pytest.mark.slow
def test_a_net_for_any_number_of_classes_is_evaluated_and_analyzed(home, tmp_path, capsys):
    run = runs.open_run(tmp_path / "run")
    assert (run.record.data.labels, run.record.data.multi_label) == (CORNERS, True)
    assert {"label_accuracy", "f1", "val_f1", "cross_entropy"} <= run.record.metrics.keys()
    entropies = [row["val_cross_entropy"] for row in metrics_file.read(tmp_path / "run" / "metrics.csv")]
    assert run.record.metrics["best_val_cross_entropy"] == pytest.approx(min(entropies))
    assert run.record.metrics["best_epoch"] == np.argmin(entropies) + 1
    assert main(["evaluate", "run"]) == 0
    assert "average" in capsys.readouterr().out
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert found["mean_average_precision"] > 0.95
    test, fitted = sources.load(run.config.data, "test"), preprocess.load(tmp_path / "run" / "preprocess.npz")
    logits = runs.load_model(run).predict(preprocess.apply(fitted, test.images), verbose=0)
    again = multi_label.measure(logits, test.labels, CORNERS, "final", found["data"])
    assert found["loss"] == pytest.approx(again.loss, rel=1e-4)
    assert not (tmp_path / "run" / "figures" / "confusion.png").exists()
    assert "macro F1" in (tmp_path / "run" / "report.md").read_text()
    assert main(["evaluate", "run", "--mirror"]) == 2
    assert "--mirror is for one class an image" in capsys.readouterr().err
    # Other images, in a folder for each set of classes, of some of the classes.
    for name in ("ne|sw", "sw"):
        (tmp_path / "others" / name).mkdir(parents=True)
        (tmp_path / "others" / name / "0.png").write_bytes((tmp_path / "images" / "000.png").read_bytes())
    assert main(["evaluate", "run", "--data", "others"]) == 0
    other = json.loads((tmp_path / "run" / "evaluations" / "others" / "evaluation.json").read_text())
    assert [one["count"] for one in other["classes"]] == [1, 0, 0, 2]
    assert main(["analyze", "run", "--examples", "60"]) == 0
    with np.load(tmp_path / "run" / "analysis" / "arrays.npz") as arrays:
        assert arrays["lesion_intact_loss"] < 1
        assert not {"lesion_accuracy", "route_classes"} & {*arrays}
    assert not (tmp_path / "run" / "analysis" / "figures" / "classes.png").exists()
    assert main(["prune", "run", "--tolerance", "1000"]) == 0
    assert runs.open_run(tmp_path / "run-pruned").record.pruned.before.keys() == {"loss"}


@pytest.mark.slow
def test_a_net_for_any_number_of_classes_is_exported_and_served(home, tmp_path, capsys):
    run, fitted = runs.open_run(tmp_path / "run"), preprocess.load(tmp_path / "run" / "preprocess.npz")
    assert main(["evaluate", "run"]) == 0
    assert main(["export", "run", "--calibrate"]) == 0
    assert main(["export", "models/run", "--verify"]) == 0
    content = manifest.read(tmp_path / "models" / "run" / "1")
    assert (content.multi_label, content.labels) == (True, CORNERS)
    assert content.run.test["mean_average_precision"] > 0.95
    capsys.readouterr()
    image = tmp_path / "images" / "000.png"
    logits = runs.load_model(run).predict(_input(image, fitted), verbose=0)[0]
    expected = multi_label.sigmoid(logits / content.temperature)
    assert main(["predict", "models/run", str(image), "--format", "json", "--top", "4"]) == 0
    answer = json.loads(capsys.readouterr().out)
    order = np.argsort(-expected)
    assert [one["label"] for one in answer["top"]] == [CORNERS[place] for place in order]
    assert [one["probability"] for one in answer["top"]] == pytest.approx(expected[order], abs=0.01)
    assert answer["labels"] == [CORNERS[place] for place in order if expected[place] > 0.5]
    assert main(["predict", "models/run", "images", "--out", "out.parquet"]) == 0
    assert pq.read_table("out.parquet")["labels"][0].as_py() == answer["labels"]
    with LoadedClient(make_app(Settings(tmp_path / "models"))) as client:
        served = client.post("/predict/run?top=4", content=image.read_bytes(), headers={"content-type": "image/png"})
        assert served.json()["predictions"][0]["labels"] == answer["labels"]


def _input(path, fitted):
    return preprocess.apply(fitted, np.asarray(Image.open(path))[None, ..., None]).numpy()


@pytest.mark.slow
def test_rows_with_any_number_of_classes(tmp_path, capsys):
    random = np.random.default_rng(0)
    values = random.normal(size=(300, 2)).round(3)
    flags = np.column_stack([values[:, 0] > 0, values.sum(axis=1) > 0.5]).astype(int)
    lines = [",".join(map(str, (*row, *two))) for row, two in zip(values.tolist(), flags.tolist(), strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y,large,sum", *lines]) + "\n")
    assert main(["data", "show", "rows.csv", "--target", "large,sum"]) == 0
    said = capsys.readouterr().out
    assert "task: classification, any number of classes for each row" in said
    assert f"classes: large {flags[:, 0].sum()}, sum {flags[:, 1].sum()}" in said
    rate = ["--optimizer.learning-rate", "0.01", "--run", "run"]
    assert main(["train", "table", "--data", "rows.csv", "--target", "large,sum", *NET, *rate]) == 0
    assert main(["evaluate", "run"]) == 0
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert found["mean_average_precision"] > 0.9
    assert main(["evaluate", "run", "--data", "rows.csv"]) == 0
    assert main(["export", "run"]) == 0
    capsys.readouterr()
    assert main(["predict", "models/run", "rows.csv"]) == 0
    whole = json.loads((tmp_path / "run" / "evaluations" / "rows_csv" / "evaluation.json").read_text())
    right = f"labels right {whole['label_accuracy']:.1%}, all of a row for {whole['exact']:.1%}"
    assert right in capsys.readouterr().out

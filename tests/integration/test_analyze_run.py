"""`highway analyze` on trained runs: measurements, files, and refusals."""

import csv
import dataclasses
import io
import re

import keras
import numpy as np
import pytest
from rich.console import Console

import highway_keras
from pipelines import studies
from pipelines.analysis import examples
from pipelines.analysis.analyze import analyze
from pipelines.core import run as runs
from pipelines.core.config import Subset
from pipelines.data import preprocess
from pipelines.data.sources import DataInfo
from pipelines.training.train import train
from pipelines.verbs.cli import main
from tests.finished_run import DIGITS, finished, tiny_net
from tests.toy_data import COUNTS, ToyData, toy_config

FIGURES = ("gates", "openness", "classes", "lesions", "units", "routes")


@pytest.fixture(scope="module")
def analysed(trained_run):
    """The folder and the measurements of an analysis, the printed text, and the splits that were read."""
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        data = ToyData().install(patch)
        folder, found = analyze(trained_run, units=True, console=Console(file=output))
    return folder, found, output.getvalue(), data.asked


@pytest.fixture
def toy(monkeypatch):
    return ToyData().install(monkeypatch)


@pytest.fixture
def reused_measurements(analysed, monkeypatch):
    """Reuses the measurements of `analysed` in every analysis, with its own examples."""

    def measure(net, whole, routed, *_, **__):
        return dataclasses.replace(analysed[1], whole=whole, routed=routed)

    monkeypatch.setattr("pipelines.analysis.measuring.measure", measure)


@pytest.fixture
def without_figures(monkeypatch):
    monkeypatch.setattr("pipelines.analysis.figures.draw", lambda *_: None)


def error_of(capsys, *words):
    assert main(["analyze", *map(str, words)]) == 2
    output = capsys.readouterr().err
    assert output.startswith("highway analyze: error: ")
    return output


def examples_of(toy, run, split):
    data = toy.load("toy", split)
    return np.asarray(preprocess.apply(preprocess.load(run / "preprocess.npz"), data.images)), data.labels


def table(folder):
    with (folder / "layers.csv").open() as lines:
        return list(csv.DictReader(lines))


def test_an_analysis_measures_a_run_and_writes_a_page(trained_run, analysed, toy):
    folder, _, output, asked = analysed
    assert "lesions: 200 examples" in output
    assert asked == ["train", "validation"]  # not the test split
    assert folder == trained_run / "analysis"
    assert sorted(path.name for path in folder.iterdir()) == ["analysis.md", "arrays.npz", "figures", "layers.csv"]
    assert not [path for path in trained_run.iterdir() if path.name.startswith(".")]

    model = runs.load_model(runs.open_run(trained_run))
    x, y = examples_of(toy, trained_run, "train")
    rows = table(folder)
    gates = highway_keras.gates(model, x)
    assert [row["name"] for row in rows] == list(gates)
    for row, gate in zip(rows, gates.values(), strict=True):
        assert float(row["mean_T"]) == pytest.approx(gate.mean(), abs=1e-5)
        assert float(row["share_below_0.1"]) == pytest.approx((gate < 0.1).mean(), abs=1e-5)
    with np.load(folder / "arrays.npz") as arrays:
        np.testing.assert_allclose(arrays["mean"], np.concatenate([g.mean(0) for g in gates.values()]), rtol=1e-4)
        means = [np.concatenate([g[y == label].mean(0) for g in gates.values()]) for label in range(4)]
        np.testing.assert_allclose(arrays["class_means"], means, rtol=1e-4)
        np.testing.assert_allclose(arrays["example_gates"], np.concatenate([g[0] for g in gates.values()]), rtol=1e-4)
        assert arrays["routes"].shape == (COUNTS["validation"], len(rows))
        np.testing.assert_array_equal(arrays["route_classes"], toy.load("toy", "validation").labels)
        logits = model.predict(x, verbose=0)
        assert arrays["lesion_intact_accuracy"] == pytest.approx((logits.argmax(1) == y).mean())
        assert float(rows[0]["lesion_loss"]) == pytest.approx(arrays["lesion_loss"][0], abs=1e-6)
    page = (folder / "analysis.md").read_text()
    shown = re.findall(r"\]\((figures/\w+\.png)\)", page)
    assert shown == [f"figures/{name}.png" for name in FIGURES]
    assert all((folder / path).read_bytes().startswith(b"\x89PNG") for path in shown)
    assert "train split, 200 examples" in page


def test_the_lesion_of_the_first_layer_equals_a_manual_one(trained_run, analysed, toy):
    model = runs.load_model(runs.open_run(trained_run))
    x, y = examples_of(toy, trained_run, "train")
    stack = model.get_layer("highway")
    for weights, value in ((stack.transform_kernel, 0), (stack.transform_bias, -100)):
        changed = np.array(weights)
        changed[0] = value
        weights.assign(changed)
    accuracy = (model.predict(x, verbose=0).argmax(1) == y).mean()
    assert analysed[1].lesions.scores["accuracy"][0] == pytest.approx(accuracy)


@pytest.mark.slow
def test_studies_measure_the_same_as_an_analysis(trained_run, analysed, toy):
    with np.load(analysed[0] / "arrays.npz") as arrays:
        for name in ("gates", "routing", "lesions"):
            found = studies.get(name).measure(runs.open_run(trained_run), None)
            shared = set(found) & set(arrays) - {"routes", "route_classes"}
            assert len(shared) > 7
            for array in shared:
                if arrays[array].dtype.kind == "f":
                    np.testing.assert_allclose(found[array], arrays[array], rtol=1e-5, atol=1e-7, err_msg=array)
                else:
                    np.testing.assert_array_equal(found[array], arrays[array], err_msg=array)
    assert set(toy.asked) <= {"train", "validation"}


def test_only_the_examples_of_the_subset_are_read(toy, tmp_path):
    config = toy_config(epochs=1, subset=Subset(train=60, test=20))
    run = train(config, tmp_path / "run", console=Console(file=io.StringIO()))
    assert examples.part(examples.opened(run), "train").count == 60
    assert examples.part(examples.opened(run, data="more"), "train").count == COUNTS["train"]


@pytest.mark.usefixtures("reused_measurements", "without_figures")
def test_a_new_analysis_replaces_the_old_one_and_nothing_else(trained_run, toy, tmp_path, capsys):
    words = [trained_run, "--to", tmp_path / "a", "--examples", "10", "--split", "validation"]
    assert main(["analyze", *map(str, words)]) == 0
    output = capsys.readouterr().out
    assert "analysis.md" in output
    assert "sum of their mean gates" in output
    (tmp_path / "a" / "old").touch()
    assert main(["analyze", *map(str, words)]) == 0
    assert not (tmp_path / "a" / "old").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").touch()
    assert "exists and is not an analysis" in error_of(capsys, trained_run, "--to", tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.usefixtures("reused_measurements", "without_figures")
def test_the_test_split_is_read_only_on_request(trained_run, toy, tmp_path):
    _, found = analyze(trained_run, tmp_path / "a", split="test", console=Console(file=io.StringIO()))
    assert toy.asked == ["test", "test"]
    assert (found.whole.split, found.routed.split, found.whole.count) == ("test", "test", 60)


@pytest.mark.usefixtures("reused_measurements", "without_figures")
def test_fewer_examples_are_evenly_spaced_over_the_split(trained_run, toy, tmp_path):
    _, found = analyze(trained_run, tmp_path / "a", examples=50, console=Console(file=io.StringIO()))
    _, y = examples_of(toy, trained_run, "train")
    assert (found.whole.count, found.whole.of, found.routed.count) == (50, 200, 40)
    read = np.concatenate([np.asarray(labels).argmax(axis=1) for _, labels in found.whole.batches])
    np.testing.assert_array_equal(read, y[::4])
    page = (tmp_path / "a" / "analysis.md").read_text()
    assert "50 examples of 200, evenly spaced" in page


@pytest.mark.usefixtures("reused_measurements")
def test_a_failed_analysis_leaves_no_files(trained_run, toy, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipelines.analysis.figures.draw", full)
    assert main(["analyze", str(trained_run), "--to", str(tmp_path / "a"), "--examples", "20"]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_cannot_be_analysed_is_refused_with_the_reason(trained_run, toy, tmp_path, monkeypatch, capsys):
    assert "there is no run directory" in error_of(capsys, tmp_path / "none")
    finished(tmp_path / "plain", keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten()]), data=DIGITS)
    assert "no highway layers" in error_of(capsys, tmp_path / "plain")
    toy.counts = {**COUNTS, "validation": 0}
    monkeypatch.setattr("pipelines.data.sources.load", refuse_empty)
    other = DataInfo("other", "2.0.0", (8, 8, 1), ("a", "b"), {"train": 1, "validation": 1, "test": 1})
    monkeypatch.setattr("pipelines.data.sources.describe", lambda *_: other)
    assert "but the data found is other 2.0.0" in error_of(capsys, trained_run)
    assert "with 2 classes: name other data" in error_of(capsys, trained_run, "--data", "other")


def refuse_empty(*_, **__):
    raise AssertionError("read before the data was checked")


def test_a_convolutional_net_is_analysed_by_channel(toy, tmp_path, monkeypatch):
    ToyData(side=28).install(monkeypatch)
    labels = ("nw", "ne", "sw", "se")
    data = runs.DataRecord(name="toy", version="1.0.0", shape=(28, 28, 1), labels=labels, counts=COUNTS)
    keras.utils.set_random_seed(0)
    net = keras.Sequential([*tiny_net().layers[:-1], keras.layers.Dense(4, dtype="float32")])
    net.build((None, 28, 28, 1))
    run = finished(tmp_path / "run", net, data=data)
    folder, found = analyze(run.path, examples=30, units=True, console=Console(file=io.StringIO()))
    assert found.layout.units == (4, 8)
    with np.load(folder / "arrays.npz") as arrays:
        assert arrays["unit_lesion_loss"].shape == (12,)
        assert arrays["example_outputs"].shape == (12,)
    assert (folder / "figures" / "units.png").exists()
    assert "Units closed one by one" in (folder / "analysis.md").read_text()

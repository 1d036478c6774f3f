"""`highway prune`: a run becomes another run with fewer layers, which the other verbs read."""

import csv
import io
import shutil

import keras
import numpy as np
import pytest
from rich.console import Console

from highway_keras import ConvHighway, HighwayStack
from pipelines.core import run as runs
from pipelines.core.run import load_model, open_run
from pipelines.core.url import Url
from pipelines.training.train import train
from pipelines.verbs.cli import main
from serving.manifest import read
from tests.finished_run import finished
from tests.toy_data import COUNTS, ToyData, toy_config

LAYERS = 8
# Layers that are closed by their biases: without them, the net computes the same.
CLOSED = (1, 2, 5, 6)
WIDTH = 12


@pytest.fixture
def toy(monkeypatch):
    return ToyData().install(monkeypatch)


@pytest.fixture(scope="module")
def deep_run(tmp_path_factory):
    """A trained run, to which layers were added that do nothing, and others that change the order of the features."""
    path = tmp_path_factory.mktemp("deep") / "run"
    with pytest.MonkeyPatch.context() as patch:
        ToyData().install(patch)
        config = toy_config(epochs=4)
        model = config.model.model_copy(update={"depth": LAYERS + 1, "activation": "relu"})
        run = train(config.model_copy(update={"model": model}), path, console=Console(file=io.StringIO()))
    net = load_model(run)
    stack, output = stack_of(net), net.layers[-1]
    kernel, bias = np.zeros(stack.kernel.shape, "float32"), np.full(stack.transform_bias.shape, 40.0, "float32")
    order = np.eye(WIDTH, dtype="float32")
    for place in range(LAYERS):
        if place in CLOSED:
            bias[place] = -40
        else:
            kernel[place] = np.roll(np.eye(WIDTH), place + 1, axis=1)
            order = order @ kernel[place]
    stack.kernel.assign(kernel)
    stack.transform_kernel.assign(np.zeros_like(kernel))
    stack.bias.assign(np.zeros_like(bias))
    stack.transform_bias.assign(bias)
    output.kernel.assign(order.T @ np.array(output.kernel))
    net.save(path / "model.keras")
    return path


def stack_of(net):
    return next(layer for layer in net.layers if isinstance(layer, HighwayStack))


def pruned(run, to, *words):
    assert main(["prune", str(run), "--to", str(to), *words]) == 0
    return open_run(to)


def error_of(capsys, *words):
    assert main(["prune", *map(str, words)]) == 2
    output = capsys.readouterr().err
    assert output.startswith("highway prune: error: ")
    return output


@pytest.mark.usefixtures("toy")
def test_layers_that_do_nothing_are_removed(deep_run, tmp_path, capsys):
    new = pruned(deep_run, tmp_path / "small", "--tolerance", "0")
    found, old, net = new.record.pruned, open_run(deep_run), load_model(new)
    name = stack_of(net).name
    assert found.removed == tuple(f"{name}_{place + 1:02}" for place in CLOSED)
    assert (found.source, found.layers, found.split, found.examples) == ("run", LAYERS, "validation", 40)
    assert found.after == pytest.approx(found.before, abs=1e-5)
    assert found.before["accuracy"] > 0.8
    assert stack_of(net).depth == LAYERS - len(CLOSED)
    assert new.record.parameters == sum(int(np.prod(one.shape)) for one in net.trainable_variables)
    assert (new.config, new.record.data) == (old.config, old.record.data)
    with (tmp_path / "small" / "pruning.csv").open() as file:
        rows = [*csv.DictReader(file)]
    chosen = next(row for row in rows if int(row["closed"]) == len(found.removed))
    assert float(chosen["accuracy"]) == pytest.approx(found.after["accuracy"], abs=1e-6)
    assert (tmp_path / "small" / "figures" / "pruning.png").exists()
    report = (tmp_path / "small" / "report.md").read_text()
    assert f"{LAYERS - len(CLOSED)} of the {LAYERS} highway layers of run" in report
    assert "validation, 40 examples, pruned" in report
    said = capsys.readouterr().out
    assert f"next: highway evaluate {tmp_path / 'small'}" in said


@pytest.mark.usefixtures("toy")
def test_a_large_tolerance_allows_every_layer_to_be_removed(deep_run, tmp_path):
    found = pruned(deep_run, tmp_path / "plain", "--tolerance", "0.99").record.pruned
    assert len(found.removed) == LAYERS
    assert found.after["accuracy"] < found.before["accuracy"] - 0.1


def test_a_pruned_run_is_evaluated_and_exported_and_not_resumed(deep_run, tmp_path, toy, capsys):
    pruned(deep_run, tmp_path / "small")
    assert toy.asked == ["validation"], "the test split has no part in it"
    assert main(["evaluate", str(tmp_path / "small")]) == 0
    assert "test split, 60 images" in (tmp_path / "small" / "report.md").read_text()
    assert main(["export", str(tmp_path / "small"), "--to", str(tmp_path / "models" / "small")]) == 0
    manifest = read(tmp_path / "models" / "small" / "1")
    left = LAYERS - len(CLOSED)
    assert len(manifest.gates) == left
    assert manifest.run.pruned == open_run(tmp_path / "small").record.pruned.model_dump(mode="json")
    assert f"without {len(CLOSED)} of {LAYERS} highway layers of {deep_run.name}" in capsys.readouterr().out
    assert main(["prune", str(tmp_path / "small"), "--to", str(tmp_path / "again"), "--tolerance", "0.99"]) == 0
    assert open_run(tmp_path / "again").record.pruned.layers == left
    capsys.readouterr()
    assert main(["train", "--resume", str(tmp_path / "small")]) == 2
    assert "is finished" in capsys.readouterr().err


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("state", ["running", "diverged"])
def test_the_best_weights_of_an_unfinished_run_become_a_finished_run(deep_run, tmp_path, capsys, state):
    shutil.copytree(deep_run, tmp_path / "stopped")
    (tmp_path / "stopped" / "model.keras").replace(tmp_path / "stopped" / "best.keras")
    stopped = open_run(tmp_path / "stopped")
    stopped.update(state=state, trained=True, step=stopped.record.steps_per_epoch)
    new = pruned(stopped.path, small := tmp_path / "small", "--weights", "best")
    assert (new.record.state, new.record.trained, new.record.step) == ("finished", False, stopped.record.step)
    assert "(1 of 4 epochs)" in (small / "report.md").read_text()
    assert main(["export", str(small), "--to", str(tmp_path / "models" / "small")]) == 0
    before = (small / "model.keras").read_bytes()
    for _ in range(2):
        assert main(["train", "--resume", str(small)]) == 2
        assert "has the pruned net of another run" in capsys.readouterr().err
        # A run without its report is otherwise one that was killed after its last step.
        (small / "report.md").unlink(missing_ok=True)
    assert (small / "model.keras").read_bytes() == before


@pytest.mark.usefixtures("toy")
def test_what_cannot_be_pruned_is_refused(deep_run, tmp_path, capsys):
    assert "there is no run directory" in error_of(capsys, tmp_path / "none")
    for given in ("1", "5"):
        message = error_of(capsys, deep_run, "--to", tmp_path / "new", "--tolerance", given)
        assert f"a fraction of the examples, below 1: 0.05 allows 5 percentage points. Received: {given}." in message
    message = error_of(capsys, deep_run, "--to", tmp_path)
    assert f"{tmp_path} exists already, and a run is never overwritten. Name another folder with --to DIR." in message
    plain = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(4)])
    labels = ("nw", "ne", "sw", "se")
    data = runs.DataRecord(name="toy", version="1.0.0", shape=(8, 8, 1), labels=labels, counts=COUNTS)
    finished(tmp_path / "plain", plain, data=data)
    assert "no highway layers" in error_of(capsys, tmp_path / "plain")
    shared = ConvHighway(3, name="shared")
    image = keras.Input((8, 8, 1))
    x = shared(shared(keras.layers.Conv2D(2, 3)(image)))
    net = keras.Model(image, keras.layers.Dense(4)(keras.layers.Flatten()(x)))
    finished(tmp_path / "shared", net, data=data)
    assert "is called more than once" in error_of(capsys, tmp_path / "shared", "--tolerance", "0.99")
    assert not (tmp_path / "shared-pruned").exists()


@pytest.mark.usefixtures("toy")
def test_a_net_that_needs_all_layers_is_left_alone(deep_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("highway_keras.analysis.Elimination.spared", lambda *_: 0)
    message = error_of(capsys, deep_run, "--to", tmp_path / "small")
    assert "has no highway layer to spare: without " in message
    assert "the tolerance is 0.1 percentage points. Allow more with --tolerance" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("toy")
def test_a_pruned_run_may_be_written_to_a_bucket(deep_run, capsys):
    to = Url("memory://pruned/small")
    assert main(["prune", str(deep_run), "--to", str(to)]) == 0
    assert (to / "run.json").exists()
    assert (to / "figures" / "pruning.png").exists()
    assert f"run directory {to}" in capsys.readouterr().out
    assert f"{to} exists already" in error_of(capsys, deep_run, "--to", to)

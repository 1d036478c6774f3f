"""Results of commands of earlier commits (tests/golden/results/COMMIT.tar.xz): studies, tables.

The current code opens each, and a repeated command finds its work done. tests/golden/results.py writes the archives.
"""

import csv
import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines import studies
from pipelines.analysis import storage
from pipelines.core.run import open_run
from pipelines.data.sources import load
from pipelines.recipes import named_recipe
from pipelines.training.evaluation import of_run
from pipelines.tuning import results as tuning_results
from pipelines.tuning import search_state
from pipelines.tuning.search_plan import open_plan
from pipelines.verbs.cli import main
from serving.manifest import GATE_MEANS, PROBABILITIES
from serving.model import open_model
from tests.finished_study import prepare
from tests.golden.results import PREDICT, STUDIES, TUNE, reproduce

ARCHIVES = Path(__file__).parents[1] / "golden" / "results"
# tf.data compiles its functions anyway, and warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:Even though the .* option is set:UserWarning")


@pytest.fixture(params=sorted(ARCHIVES.glob("*.tar.xz")), ids=lambda path: path.name.partition(".")[0])
def unpacked(request, tmp_path, monkeypatch):
    """The unpacked archive, as the current folder."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def toy(shared, monkeypatch):
    """Sets the folder of data sets to that of the toy data, which the studies were run on."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(shared("studied", prepare)))


def rows(path):
    """Returns the rows of a table, without the label of a study, whose words are free to change."""
    with path.open(newline="") as file:
        return [{key: row[key] for key in row if key != "schedule"} for row in csv.DictReader(file)]


def times(folder):
    """Returns when each run in a folder was last written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("run.json")}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in ("gates", "mnist") else ()) for name in STUDIES]
)
def test_a_finished_study_is_found_finished(unpacked, toy, capsys, name):
    folder = Path("studies") / name
    before, table = times(folder), rows(folder / "results.csv")
    assert main(reproduce(name, STUDIES[name])) == 0
    assert f"{len(table)} of them done" in capsys.readouterr().out
    assert times(folder) == before
    assert rows(folder / "results.csv") == table
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {studies.get(name).title}\n")
    assert list((folder / "figures").iterdir())


@pytest.mark.slow
def test_a_half_done_study_goes_on_with_the_nets_that_are_left(unpacked, toy, capsys):
    folder = Path("studies/depth-contrast")
    before = times(folder)
    assert len(before) == 1
    assert main(reproduce("depth-contrast", [*STUDIES["depth-contrast"], "plain-5"])) == 0
    assert "2 runs, 1 of them done" in capsys.readouterr().out
    assert [row["arm"] for row in rows(folder / "results.csv")] == ["highway-5", "plain-5"]
    assert before.items() < times(folder).items()


def test_another_budget_of_a_study_is_refused_in_its_folder(unpacked, toy, capsys):
    words = reproduce("depth-contrast", STUDIES["depth-contrast"])
    words[words.index("--budget") + 1] = "0.5"
    assert main(words) == 2
    assert "its budget was 1e-06 and is 0.5. Repeat its own command" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.slow
def test_a_finished_search_is_found_finished_with_its_retrained_winner(unpacked, mnist_5k, monkeypatch, capsys):
    monkeypatch.setenv("TFDS_DATA_DIR", str(mnist_5k))
    folder = Path("searches/retrained")
    before, trials = times(folder), rows(folder / "trials.csv")
    assert main([*TUNE, "--to", str(folder)]) == 0
    # The winner was retrained with the seed of the search then; now, a run with another seed is added.
    added = folder / "retrained" / "mnist_dense_50-seed-1" / "run.json"
    assert {path: when for path, when in times(folder).items() if path != added} == before
    assert "retrained: best validation accuracy" in capsys.readouterr().out
    assert [row["val_accuracy"] for row in rows(folder / "trials.csv")] == [row["val_accuracy"] for row in trials]
    assert main(["evaluate", str(folder / "retrained" / "mnist_dense_50-seed-0")]) == 0


def test_the_winners_of_a_search_over_several_nets_are_recipes(unpacked, capsys):
    folder = Path("searches/depth_study")
    plan, state = open_plan(folder), search_state.read(folder)
    best = tuning_results.winners(plan, state)
    assert list(best) == [net.name for net in plan.nets]
    for net, trial in best.items():
        recipe = named_recipe(str(folder / f"best-{net}.json"))
        assert recipe.config == tuning_results.recipe(plan, state, trial).config
    before = sorted(folder.rglob("*"))
    assert main(["tune", "depth_study", "--to", str(folder)]) == 2
    assert "highway reproduce optimization" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_predictions_are_found_complete_and_made_again(unpacked, capsys):
    out = Path("predictions.parquet")
    before = pq.read_table(out)
    assert main(PREDICT) == 0
    assert "already complete, with 1 image" in capsys.readouterr().out
    out.unlink()
    assert main(PREDICT) == 0
    again = pq.read_table(out)
    assert again.schema.equals(before.schema, check_metadata=True)
    for name in ("path", "error", "label"):
        assert again[name] == before[name]
    for name in (PROBABILITIES, GATE_MEANS):
        np.testing.assert_allclose(again[name][0].as_py(), before[name][0].as_py(), atol=1e-5)


def test_predictions_whose_parts_were_not_joined_are_completed(unpacked, capsys):
    out = Path("predictions.parquet")
    before, parts = pq.read_table(out), Path(".predictions.parquet.parts")
    parts.mkdir()
    (parts / "job.json").write_bytes(before.schema.metadata[b"job"])
    out.rename(parts / "00000000.parquet")
    assert main(PREDICT) == 0
    assert "1 image (1 by earlier attempts)" in capsys.readouterr().out
    assert pq.read_table(out).equals(before)
    assert not parts.exists()


@pytest.mark.slow
def test_a_version_with_int8_is_verified(unpacked, capsys):
    assert main(["export", "models/digits", "--verify"]) == 0
    said = capsys.readouterr()
    assert "int8 ONNX model" in said.out + said.err


def test_a_version_with_int8_is_opened(unpacked):
    model = open_model(Path("models/digits"))
    assert model.manifest.int8 is not None


@pytest.mark.parametrize("name", ["digits", "factor"])
def test_an_evaluation_is_read_and_made_again(unpacked, mnist_5k, fama_french, monkeypatch, name):
    run = open_run(Path("runs") / name)
    before = of_run(run)
    assert before is not None
    monkeypatch.setenv("TFDS_DATA_DIR", str(mnist_5k if name == "digits" else fama_french))
    assert main(["evaluate", str(run.path)]) == 0
    old, again = (json.loads(each.model_dump_json()) for each in (before, of_run(run)))
    for field in ("count", *(("correct", "accuracy", "loss") if name == "digits" else ("rmse", "mae"))):
        assert again[field] == pytest.approx(old[field], rel=1e-4), field
    if name == "factor":
        # R² was against the training mean, and is against the mean of the test targets.
        targets = load("fama_french", "test", fama_french).labels.astype(float)
        for evaluated, mean in ((old, old["training_mean"]), (again, targets.mean())):
            unexplained = evaluated["rmse"] ** 2 * len(targets) / np.square(targets - mean).sum()
            assert evaluated["r2"] == pytest.approx(1 - unexplained, abs=1e-5)
    assert again.get("confusion") == old.get("confusion")


def test_the_arrays_of_an_analysis_are_read(unpacked):
    with np.load("runs/digits/analysis/arrays.npz") as arrays:
        found = dict(arrays)
    statistics, lesions = storage.statistics(found), storage.lesions(found)
    assert statistics.layout.layers == lesions.layout.layers
    assert 0 < statistics.mean.mean() < 1
    assert set(lesions.scores) == {"loss", "accuracy"}


@pytest.mark.slow
def test_an_analysis_is_replaced(unpacked, mnist_5k, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(mnist_5k))
    with np.load("runs/digits/analysis/arrays.npz") as arrays:
        before = dict(arrays)
    assert main(["analyze", "runs/digits", "--examples", "20"]) == 0
    with np.load("runs/digits/analysis/arrays.npz") as again:
        assert before.keys() <= set(again.files)
        np.testing.assert_allclose(again["mean"], before["mean"], rtol=1e-3)
        np.testing.assert_allclose(again["lesion_loss"], before["lesion_loss"], rtol=1e-3)

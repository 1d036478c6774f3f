"""Artefacts of earlier commits (tests/golden/COMMIT.tar.xz): run directories, searches, recipes, a signed version.

The current code opens each of them, or refuses it with a message that says what to do. tests/golden/artefacts.py
writes them.
"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines import recipes
from pipelines.core.environment import versions
from pipelines.core.optimizers import CosineSchedule
from pipelines.core.run import open_run
from pipelines.recipes import named_recipe
from pipelines.tuning import oracles, search_state
from pipelines.tuning.ask_tell import AskTell
from pipelines.tuning.search_plan import SEARCH_FILE
from pipelines.verbs.cli import main
from pipelines.verbs.tune import parse_tune
from serving.engine.settings import Settings
from serving.http.app import make_app
from serving.signature import public_key
from tests.endpoint import LoadedClient
from tests.golden.archives import enter
from tests.golden.artefacts import TUNE

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(params=sorted(GOLDEN.glob("*.tar.xz")), ids=lambda path: path.name.partition(".")[0])
def artefacts(request, tmp_path, monkeypatch, mnist_5k):
    """The unpacked archive, as the current folder."""
    return enter(request.param, tmp_path, mnist_5k, monkeypatch)


@pytest.mark.slow
def test_an_interrupted_run_resumes(artefacts, capsys):
    run = Path("runs/interrupted")
    before = json.loads((run / "run.json").read_text())
    status = main(["train", "--resume", str(run)])
    # Earlier commits recorded fewer packages.
    if before["versions"] != {name: version for name, version in versions().items() if name in before["versions"]}:
        # Results would no longer be bit-identical.
        assert status == 2
        assert "versions" in capsys.readouterr().err
        return
    assert status == 0
    record, uninterrupted = open_run(run).record, open_run(Path("runs/finished")).record
    assert (before["state"], record.state, record.step) == ("running", "finished", 12)
    # The archive may come from another processor, which rounds differently.
    assert record.metrics["loss"] == pytest.approx(uninterrupted.metrics["loss"], rel=1e-3)


def test_a_finished_run_is_evaluated(artefacts):
    assert main(["evaluate", "runs/finished"]) == 0
    assert json.loads(Path("runs/finished/evaluation.json").read_text())["count"] == 20


@pytest.mark.slow
def test_a_finished_run_is_analyzed_and_exported(artefacts):
    assert main(["analyze", "runs/finished", "--examples", "20"]) == 0
    assert Path("runs/finished/analysis/analysis.md").is_file()
    assert main(["export", "runs/finished"]) == 0
    assert main(["export", "models/finished", "--verify"]) == 0


def test_a_signed_version_is_served_and_predicts_as_before(artefacts, capsys):
    settings = Settings(models=artefacts / "models", trust=(public_key(Path("key.pub")),))
    with np.load("models/finished/1/parity.npz") as parity, LoadedClient(make_app(settings)) as client:
        answer = client.post("/v1/models/finished:predict", json={"instances": parity["images"][:2].tolist()})
        assert answer.status_code == 200, answer.text
        found = [prediction["probabilities"] for prediction in answer.json()["predictions"]]
        np.testing.assert_allclose(found, parity["probabilities"][:2], atol=1e-5)
        Image.fromarray(parity["images"][0, ..., 0]).save("digit.png")
        # Its picture.onnx does not count digits.
        answer = client.post("/predict/finished?segments=true", content=Path("digit.png").read_bytes())
        assert (answer.status_code, set(answer.json()["predictions"][0])) == (200, {"top"})
    assert main(["predict", "models/finished", "digit.png"]) == 0
    assert "digit.png" in capsys.readouterr().out


def test_recipe_files_hold_the_same_configurations(artefacts):
    for path in Path("recipes").glob("*.json"):
        expected = recipes.get(path.stem).config
        if path.stem == "demo":
            # The recipe says the same warm-up as a share of its 1,440 steps; see `test_config.py`.
            expected = expected.model_copy(update={"schedule": CosineSchedule(warmup_steps=100)})
        assert named_recipe(str(path)).config == expected
    assert named_recipe("best.json").config.epochs == 2


def test_a_stopped_search_has_the_same_fingerprint_and_trials(artefacts):
    folder = Path("searches/stopped")
    plan = parse_tune(TUNE[1:]).search.plan
    SEARCH_FILE.keep(plan, folder)
    before = json.loads((folder / "oracle.json").read_text())
    search = AskTell(plan, search_state.read(folder).objective, folder)
    assert search.oracle.get_space().values[oracles.FINGERPRINT] == plan.fingerprint
    assert len(search.oracle.trials) == 2
    # Earlier versions read what this one writes.
    search.pause()
    after = json.loads((folder / "oracle.json").read_text())
    assert after.keys() == before.keys()
    assert after["oracle"].keys() == before["oracle"].keys()
    assert after["trials"][0] == before["trials"][0]
    assert {"worker", "since", "seconds"} == after["clock"]["0"].keys() < before["clock"]["0"].keys()


@pytest.mark.slow
def test_a_stopped_search_resumes(artefacts):
    before = json.loads(Path("searches/stopped/oracle.json").read_text())["trials"]
    assert main([*TUNE, "--to", "searches/stopped"]) == 0
    with Path("searches/stopped/trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["completed"] * 3
    scores = [float(row["val_accuracy"]) for row in rows[: len(before)]]
    assert scores == pytest.approx([trial["score"] for trial in before])

"""Work that commands of earlier commits left half done (tests/golden/interrupted/COMMIT.tar.xz): runs and searches.

The current code resumes it, or refuses it with a message that says what to do. tests/golden/interrupted.py writes the
archives.
"""

import json
from pathlib import Path

import pytest

from pipelines.core.environment import versions
from pipelines.core.run import open_run
from pipelines.tuning import search_state
from pipelines.tuning.ask_tell import AskTell
from pipelines.tuning.search_plan import SEARCH_FILE
from pipelines.verbs.cli import main
from pipelines.verbs.tune import parse_tune
from tests.golden.archives import enter
from tests.golden.interrupted import SEARCHES

ARCHIVES = Path(__file__).parents[1] / "golden" / "interrupted"


@pytest.fixture(params=sorted(ARCHIVES.glob("*.tar.xz")), ids=lambda path: path.name.partition(".")[0])
def unpacked(request, tmp_path, monkeypatch, mnist_5k):
    """The unpacked archive, as the current folder."""
    return enter(request.param, tmp_path, mnist_5k, monkeypatch)


@pytest.mark.parametrize("name", [pytest.param("conv", marks=pytest.mark.slow), "factor"])
@pytest.mark.usefixtures("unpacked")
def test_an_interrupted_run_resumes(fama_french, monkeypatch, capsys, name):
    if name == "factor":
        monkeypatch.setenv("TFDS_DATA_DIR", str(fama_french))
    run = Path("runs") / name
    before = json.loads((run / "run.json").read_text())
    assert before["state"] != "finished"
    status = main(["train", "--resume", str(run)])
    # Earlier commits recorded fewer packages.
    if before["versions"] != {name: version for name, version in versions().items() if name in before["versions"]}:
        # Results would no longer be bit-identical.
        assert status == 2
        assert "versions" in capsys.readouterr().err
        return
    assert status == 0
    record, uninterrupted = open_run(run).record, json.loads(Path(f"uninterrupted/{name}/run.json").read_text())
    assert (record.state, record.step) == ("finished", uninterrupted["step"])
    # The archive may come from another processor, which rounds differently.
    assert record.metrics["loss"] == pytest.approx(uninterrupted["metrics"]["loss"], rel=1e-3)
    assert set(record.gates) == set(uninterrupted["gates"])


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.usefixtures("unpacked")
def test_a_stopped_search_proposes_its_next_trials(name):
    folder = Path("searches") / name
    plan = parse_tune(SEARCHES[name][1:]).search.plan
    SEARCH_FILE.keep(plan, folder)
    before = json.loads((folder / "oracle.json").read_text())["trials"]
    scores = {trial["trial_id"]: trial["score"] for trial in before if trial["status"] == "COMPLETED"}
    search = AskTell(plan, search_state.read(folder).objective, folder)
    assert {number: search.oracle.trials[number].score for number in scores} == scores
    proposal = search.ask()
    assert proposal.number not in scores
    search.tell(proposal.number, 0.5)
    after = {trial["trial_id"]: trial for trial in json.loads((folder / "oracle.json").read_text())["trials"]}
    assert {number: after[number]["score"] for number in scores} == scores
    assert (after[proposal.number]["status"], after[proposal.number]["score"]) == ("COMPLETED", 0.5)

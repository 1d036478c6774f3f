"""Studies and searches in a bucket of an S3 server, which dies meanwhile."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from pipelines import recipes, studies
from pipelines.core.config import ModelConfig, Space
from pipelines.studies.run.task import act
from pipelines.tuning import search_state
from pipelines.verbs.cli import main
from pipelines.verbs.train import parse_train
from tests.bucket_files import downloaded, temporary
from tests.endpoint import eventually
from tests.executors import Shuffled
from tests.killed_run import differences
from tests.shallow_study import shallow
from tests.toy_data import toy_config

pytestmark = pytest.mark.usefixtures("own_place", "toy")
STUDY = ["bias", "--budget", "1e-06", "--arms", "10-layers-bias-2", "10-layers-bias-4"]


def test_a_study_whose_store_dies_goes_on_where_there_is_nothing_of_it(bucket, tmp_path, monkeypatch, capsys):
    for name, arm in shallow(studies.get("bias").arms).items():
        monkeypatch.setitem(studies.get("bias").arms, name, arm)
    url, trained = f"{bucket.url}/studies/bias", []

    def is_uploaded(run):
        start = f"studies/bias/runs/{run.name}"
        files = {f"{start}/{path.relative_to(run).as_posix()}": path for path in run.rglob("*") if path.is_file()}
        there = {*bucket.keys(start)}
        return all(key in there and bucket.get(key) == path.read_bytes() for key, path in files.items())

    def train_all(members, **_):
        """In this process."""
        for member in members:
            trained.append(member.name)
            act(member.task)
            if len(trained) == 1:
                eventually(partial(is_uploaded, member.task.folder))
                bucket.server.stop()

    monkeypatch.setattr("pipelines.studies.run.training.train_all", train_all)
    assert main(["reproduce", *STUDY, "--to", url]) == 2
    (kept,) = set(re.findall(r"aws s3 sync (\S+) ", capsys.readouterr().err))
    whole = Path(kept)

    bucket.server.start()
    first, second = trained
    record = bucket.get(f"studies/bias/runs/{first}/run.json")
    assert main(["reproduce", *STUDY, "--to", url]) == 0
    assert trained == [first, second, second]
    assert bucket.get(f"studies/bias/runs/{first}/run.json") == record
    found = downloaded(url, tmp_path / "bias")
    for run in (found / "runs").iterdir():
        assert differences(whole / "runs" / run.name, run) == []
    assert (found / "results.csv").read_text().count("finished") == 2
    shown = capsys.readouterr().out
    assert f"bias in {url}: 2 runs, 1 of them done" in shown
    assert f"tables and figures {url}/README.md" in shown
    assert temporary(tmp_path) == [whole.parent.name]
    assert main(["reproduce", "bias", "--to", url]) == 2
    assert f"the study in {url} is another one: its budget was 1e-06 and is 1.0" in capsys.readouterr().err


def toy_search(folder):
    """Writes a recipe; returns the words of a search with it."""
    config = toy_config(model=ModelConfig(preset="mnist_dense_50", depth=3, width=8), epochs=1)
    recipe = recipes.get("demo").model_copy(update={"config": config, "search": Space(transform_bias=(-4.0, 0.0))})
    (folder / "toy.json").write_text(recipe.model_dump_json())
    return ["tune", str(folder / "toy.json"), "--trials", "2"]


def test_a_search_whose_store_dies_goes_on_where_there_is_nothing_of_it(bucket, tmp_path, monkeypatch, capsys):
    url, oracle, ended = f"{bucket.url}/searches/toy", "searches/toy/oracle.json", []

    class Watched(Shuffled):
        def finished(self, timeout):
            if len(ended) == 1:
                eventually(lambda: bucket.keys(oracle) and b"COMPLETED" in bucket.get(oracle))
                bucket.server.stop()
            outcomes = super().finished(timeout)
            ended.extend(outcomes)
            return outcomes

    monkeypatch.setattr("pipelines.tuning.search.LocalExecutor", lambda *_: Watched(capacity=1))
    monkeypatch.setattr("pipelines.tuning.figures.draw", lambda *_: None)
    words = [*toy_search(tmp_path), "--to", url]
    assert main(words) == 2
    (kept,) = set(re.findall(r"aws s3 sync (\S+) ", capsys.readouterr().err))
    whole = search_state.read(Path(kept))

    bucket.server.start()
    before = json.loads(bucket.get(oracle))["trials"]
    assert before[0]["status"] == "COMPLETED"
    assert main(words) == 0
    assert len(ended) == 2 + 1
    found = search_state.read(downloaded(url, tmp_path / "toy"))
    assert [(trial.values, trial.score) for trial in found.trials] == [(one.values, one.score) for one in whole.trials]
    shown = capsys.readouterr().out
    assert f"resumes the search in {url}" in shown
    assert f"next: highway train {url}/best.json;" in shown
    assert "/temporary/" not in shown
    assert temporary(tmp_path) == [Path(kept).parent.name]
    assert parse_train([f"{url}/best.json"]).config.recipe == "toy_tuned"


def test_trials_are_trained_where_nothing_but_the_bucket_is_shared(bucket, tmp_path, monkeypatch, capsys):
    url, ended = f"{bucket.url}/searches/toy", []

    class Watched(Shuffled):
        def submit(self, key, task, function):
            assert "/temporary/" not in str(task.place)
            super().submit(key, task, function)

        def finished(self, timeout):
            outcomes = super().finished(timeout)
            ended.extend(outcome.key for outcome in outcomes)
            return outcomes

    monkeypatch.setattr("pipelines.tuning.search.LocalExecutor", lambda *_: Shuffled(capacity=1))
    monkeypatch.setattr("pipelines.core.cluster_executor.ClusterExecutor", lambda *_: Watched(capacity=1))
    monkeypatch.setattr("pipelines.tuning.figures.draw", lambda *_: None)
    words = toy_search(tmp_path)
    assert main([*words, "--to", str(tmp_path / "alone")]) == 0
    assert main([*words, "--to", url, "--cluster", "auto", "--retrain", "1"]) == 0
    assert len(ended) == 2 + 1
    whole, found = tmp_path / "alone", downloaded(url, tmp_path / "toy")
    for one, other in zip(*(search_state.read(folder).trials for folder in (whole, found)), strict=True):
        assert (one.values, one.score) == (other.values, other.score)
    for folder in (whole / "trials").iterdir():
        assert {path.name for path in (found / "trials" / folder.name).iterdir()} == {
            path.name for path in folder.iterdir() if not path.name.startswith(".")
        }
    assert (found / "retrained.csv").read_text().count("\n") == 2
    assert list((found / "retrained").glob("*/report.md"))
    assert temporary(tmp_path) == []
    assert "/temporary/" not in capsys.readouterr().out

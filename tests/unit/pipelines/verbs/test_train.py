"""The command that a stopped `highway train` names to resume."""

import shlex
from pathlib import Path

import pytest

from pipelines.core.errors import UserError
from pipelines.core.run import resuming
from pipelines.verbs import train
from pipelines.verbs.train import parse_train

EXECUTION = ("data_dir", "checkpoint_steps", "track", "gpus", "devices")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--data-dir", "my data"],
        ["--checkpoint-steps", "7", "--track", "mlflow", "--gpus", "none", "--devices", "2"],
        ["--gpus", "0"],
    ],
)
def test_a_run_is_resumed_as_it_was_executed(monkeypatch, words):
    def stop(config, path, **options):
        given.append(resuming(path, options["again"]))
        raise KeyboardInterrupt

    given = []
    monkeypatch.setattr(train, "train", stop)
    for skipped in ("trackers.check", "environment.choose_gpu"):
        monkeypatch.setattr(f"{train.__name__}.{skipped}", lambda _: None)
    arguments = ["demo", "--run", "my runs/demo", *words]
    with pytest.raises(KeyboardInterrupt):
        train.main(arguments)
    program, verb, *again = shlex.split(given[0])
    assert (program, verb) == ("highway", "train")
    resumed, started = parse_train(again), parse_train(arguments)
    assert resumed.resume == Path("my runs/demo")
    assert [getattr(resumed, name) for name in EXECUTION] == [getattr(started, name) for name in EXECUTION]
    # Nothing that is the same without being said.
    assert len(again) == 2 + len(words)


@pytest.mark.parametrize("cluster", [[], ["--cluster", "auto", "--hosts", "3", "--min-hosts", "2"]])
def test_a_folder_in_use_is_resumed_with_the_same_data_and_nodes(monkeypatch, tmp_path, cluster):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    (tmp_path / "run").mkdir()
    words = ["--data-dir", "data", *cluster]
    with pytest.raises(UserError, match=f"--resume {tmp_path / 'run'} {' '.join(words)}$"):
        train.main(["demo", "--run", str(tmp_path / "run"), *words])


@pytest.mark.parametrize("gpus", ["none", "0"])
def test_a_gpu_of_this_machine_is_refused_on_a_cluster(monkeypatch, gpus):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(UserError, match=r"--gpus chooses a GPU of this machine.*Leave it out; CUDA_VISIBLE_DEVICES"):
        train.main(["demo", "--cluster", "auto", "--gpus", gpus])


@pytest.mark.parametrize("words", [["--run", "runs/x"], ["--track", "mlflow"], ["--checkpoint-steps", "5"]])
def test_options_of_a_run_are_refused_where_none_is_written(monkeypatch, words):
    monkeypatch.setattr(train.trackers, "check", lambda _: None)
    monkeypatch.setattr(train, "find_rate", pytest.fail)
    with pytest.raises(UserError, match=r"--find-rate writes one figure and no run. Leave out --run, --track and"):
        train.main(["demo", "--find-rate", "rates.png", *words])


def test_the_folder_of_the_figure_is_checked_before_the_sweep(monkeypatch, tmp_path):
    monkeypatch.setattr(train, "find_rate", pytest.fail)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written: .*file is a file"):
        train.main(["demo", "--find-rate", str(tmp_path / "file" / "rates.png")])

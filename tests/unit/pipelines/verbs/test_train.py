"""The command that a stopped `highway train` names to resume, and the line with which a finished one ends."""

import shlex
from pathlib import Path

import pytest

from pipelines.core import frameworks
from pipelines.core.errors import UserError
from pipelines.core.files import write_text
from pipelines.core.run import resuming
from pipelines.verbs import train
from pipelines.verbs.train import parse_train
from tests.toy_data import RECORD

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
    write_text(tmp_path / "run" / "run.json", RECORD.model_dump_json())
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


@pytest.mark.parametrize("count", ["2", "all"])
def test_random_layers_are_not_frozen(count):
    with pytest.raises(UserError, match=f"--freeze {count} keeps layers as they were trained, and these would be"):
        train.parse_train(["demo", "--freeze", count])
    assert train.parse_train(["demo", "--freeze", count, "--from", "runs/x"]).config.freeze


def test_the_folder_of_the_figure_is_checked_before_the_sweep(monkeypatch, tmp_path):
    monkeypatch.setattr(train, "find_rate", pytest.fail)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written: .*file is a file"):
        train.main(["demo", "--find-rate", str(tmp_path / "file" / "rates.png")])


@pytest.mark.parametrize(
    ("metrics", "shown"),
    [
        (
            {"loss": 0.25, "accuracy": 0.5, "val_loss": 0.5, "val_accuracy": 0.25, "best_val_accuracy": 0.375},
            "loss 0.2500, accuracy 50.00%, validation 25.00% (best 37.50% after epoch 3)",
        ),
        (
            {"loss": 0.25, "label_accuracy": 0.875, "f1": 0.5, "val_loss": 0.5, "best_val_loss": 0.125},
            "loss 0.2500, labels right 87.50%, macro F1 0.500, validation loss 0.5000 (best 0.1250 after epoch 3)",
        ),
        (
            {
                "loss": 3.5,
                "label_accuracy": 0.875,
                "f1": 0.5,
                "cross_entropy": 0.25,
                "val_loss": 3.75,
                "val_cross_entropy": 0.5,
                "best_val_cross_entropy": 0.125,
            },
            "loss 3.5000, labels right 87.50%, macro F1 0.500, "
            "validation cross-entropy 0.5000 (best 0.1250 after epoch 3)",
        ),
        # The loss of a regression may be small in any unit.
        (
            {"loss": 1.25e-5, "mae": 0.0075, "val_loss": 2.5e-5, "best_val_loss": 1.5e-5},
            "loss 1.25e-05, mean absolute error 0.0075, validation loss 2.5e-05 (best 1.5e-05 after epoch 3)",
        ),
    ],
)
def test_a_finished_run_shows_the_scores_of_its_task(metrics, shown):
    record = RECORD.model_copy(update={"step": 40, "seconds": 2.0, "metrics": {**metrics, "best_epoch": 3.0}})
    first, _, last = train._summary(record, Path("runs/toy"), Path("my data")).splitlines()
    assert first == f"trained 40 steps in 2 s: {shown}"
    options = "runs/toy --data-dir 'my data'"
    assert last == f"next: highway evaluate {options}; highway export {options}"


@pytest.mark.parametrize("rank", [None, 0, 1])
def test_a_finished_run_that_is_resumed_shows_its_result(monkeypatch, tmp_path, capsys, rank):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    if rank is not None:
        monkeypatch.setenv("KERAS_DISTRIBUTION_JOB_ADDRESSES", "127.0.0.1:12345")
        monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "2")
        monkeypatch.setenv("KERAS_DISTRIBUTION_PROCESS_ID", str(rank))
    for action in ("resume", "train_together"):
        monkeypatch.setattr(train, action, pytest.fail)
    metrics = {"loss": 0.25, "accuracy": 0.5}
    record = RECORD.model_copy(update={"state": "finished", "step": 40, "seconds": 2.0, "metrics": metrics})
    write_text(tmp_path / "run.json", record.model_dump_json())
    (tmp_path / "report.md").touch()
    train.main(["--resume", str(tmp_path), "--gpus", "none"])
    finished, result, *_ = capsys.readouterr().out.splitlines()
    assert finished == f"{tmp_path} is finished; for more epochs, start a new run with --epochs"
    assert result == "trained 40 steps in 2 s: loss 0.2500, accuracy 50.00%"


def test_a_run_that_cannot_be_written_is_refused_before_the_frameworks_load(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(frameworks, "load", pytest.fail)
    with pytest.raises(UserError, match=r"cannot be written: .*file is a file\. Name another folder\."):
        train.main(["demo", "--run", str(tmp_path / "file" / "run"), "--gpus", "none"])


@pytest.mark.parametrize("missing", ["run.json", "report.md"])
def test_a_run_without_its_report_is_resumed(monkeypatch, tmp_path, missing):
    def completed(path, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "resume", completed)
    write_text(tmp_path / "run.json", RECORD.model_copy(update={"state": "finished"}).model_dump_json())
    (tmp_path / "report.md").touch()
    (tmp_path / missing).unlink()
    with pytest.raises(KeyboardInterrupt):
        train.main(["--resume", str(tmp_path), "--gpus", "none"])

"""`highway evaluate` on trained runs: results, files, and refusals."""

import json

import pytest

from pipelines.core import run as runs
from pipelines.core.files import write_text
from pipelines.data import preprocess
from pipelines.data.sources import DataInfo
from pipelines.training import evaluation, report
from pipelines.training.evaluate import evaluate
from pipelines.training.processes import train
from pipelines.training.processes.train import TrainTask
from pipelines.verbs.cli import main
from tests.finished_study import RESULT
from tests.toy_data import ToyData


@pytest.fixture
def toy(monkeypatch):
    return ToyData().install(monkeypatch)


def error_of(capsys, *words):
    assert main(["evaluate", *map(str, words)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("highway evaluate: error: ")
    return said


def test_the_test_split_is_evaluated_and_reported(trained_run, toy, capsys):
    assert main(["evaluate", str(trained_run)]) == 0
    assert "evaluation.json" in capsys.readouterr().out
    assert toy.asked == ["test"]
    found = json.loads((trained_run / "evaluation.json").read_text())
    run = runs.open_run(trained_run)
    examples = toy.load("toy", "test")
    images = preprocess.apply(preprocess.load(trained_run / "preprocess.npz"), examples.images)
    right = runs.load_model(run).predict(images, verbose=0).argmax(1) == examples.labels
    assert (found["weights"], found["data"], found["split"]) == ("final", "toy 1.0.0", "test")
    assert (found["count"], found["correct"]) == (60, right.sum())
    assert found["interval"][0] < found["accuracy"] == pytest.approx(right.mean())
    assert (trained_run / "figures" / "confusion.png").read_bytes().startswith(b"\x89PNG")
    assert (trained_run / "figures" / "errors.png").exists() is not right.all()
    page = (trained_run / "report.md").read_text()
    assert f"**{right.mean():.2%}**" in page
    for figure in ("learning_curve", "gates", "confusion"):
        assert f"](figures/{figure}.png)" in page
    assert run.record.command in page


def test_the_result_is_written_last_so_that_other_machines_do_not_take_a_part_for_all(trained_run, toy, monkeypatch):
    (trained_run / "evaluation.json").unlink(missing_ok=True)
    report.write(runs.open_run(trained_run))
    assert RESULT not in (trained_run / "report.md").read_text()
    task = TrainTask(folder=trained_run, data_dir=None, config=runs.open_run(trained_run).config, evaluate=True)
    written = []

    def write(path, text):
        # What a bucket holds if this machine dies now: an upload may come between any two files.
        written.append((path.name, task.done, RESULT in (trained_run / "report.md").read_text()))
        write_text(path, text)

    monkeypatch.setattr("pipelines.training.evaluate.write_text", write)
    train.act(task)
    assert written == [("evaluation.json", False, True)]
    assert task.done
    train.act(task)
    assert len(written) == 1


def test_the_best_weights_are_evaluated_on_request(trained_run, toy):
    assert evaluate(trained_run, "best").weights == "best"
    assert "best weights" in (trained_run / "report.md").read_text()


def test_mirror_images_count_in_a_labelled_figure_alone(trained_run, toy, capsys):
    plain = evaluate(trained_run)
    assert main(["evaluate", str(trained_run), "--mirror"]) == 0
    assert "all, with mirrors" in capsys.readouterr().out
    found = evaluation.read(trained_run / "evaluation.json", evaluation.Evaluation)
    images = preprocess.apply(preprocess.load(trained_run / "preprocess.npz"), toy.load("toy", "test").images).numpy()
    model = runs.load_model(runs.open_run(trained_run))
    logits = model.predict(images, verbose=0) + model.predict(images[:, :, ::-1], verbose=0)
    assert found.mirrored == pytest.approx((logits.argmax(1) == toy.load("toy", "test").labels).mean())
    assert found.model_copy(update={"mirrored": None}) == plain
    assert f"(averaged with mirror images: {found.mirrored:.2%})" in found.summary
    assert "averaged with mirror images" in (trained_run / "report.md").read_text()


def test_other_data_is_refused(trained_run, monkeypatch, capsys):
    ToyData().install(monkeypatch)
    other = DataInfo("toy", "2.0.0", (8, 8, 1), ("nw", "ne", "sw", "se"), {"train": 1, "validation": 1, "test": 1})
    monkeypatch.setattr("pipelines.data.sources.describe", lambda *_: other)
    assert "but the data found is" in error_of(capsys, trained_run)


def test_names_of_classes_that_were_numbers_in_training_are_refused_with_advice(trained_run, monkeypatch, capsys):
    record = trained_run / "run.json"
    text = record.read_text()
    for number, name in enumerate(("nw", "ne", "sw", "se")):
        text = text.replace(f'"{name}"', f'"{number}"')
    record.write_text(text)
    named = DataInfo("hub", "1.0.0", (8, 8, 1), ("cat", "dog"), {"train": 1, "validation": 1, "test": 1})
    monkeypatch.setattr("pipelines.data.sources.describe", lambda *_: named)
    said = error_of(capsys, trained_run, "--data", "mnist")
    assert "not trained on: cat, dog. It knows: 0, 1, " in said
    assert "If these numbers stand for those names" in said


def test_a_read_only_run_is_refused_before_anything_is_computed(trained_run, monkeypatch, capsys):
    monkeypatch.setattr("pipelines.training.evaluate.load_model", lambda *_: pytest.fail("loaded"))
    monkeypatch.setattr("os.access", lambda *_: False)
    assert f"{trained_run} is read-only. Name another folder." in error_of(capsys, trained_run)


def test_a_run_that_cannot_be_evaluated_is_refused_with_the_reason(trained_run, toy, tmp_path, capsys):
    assert "there is no run directory" in error_of(capsys, tmp_path / "none")
    assert "is not a run directory" in error_of(capsys, tmp_path)
    opened = runs.open_run(trained_run)
    unfinished = runs.create(tmp_path / "unfinished", opened.config, opened.record)
    unfinished.update(state="running")
    for words in ((), ("--data-dir", "data")):
        command = " ".join(["highway train --resume", str(tmp_path / "unfinished"), *words])
        assert f"is unfinished: there is no model.keras yet. Finish it with `{command}`." in error_of(
            capsys, tmp_path / "unfinished", *words
        )
    unfinished.update(state="finished")
    (tmp_path / "unfinished" / "model.keras").write_bytes((trained_run / "model.keras").read_bytes()[:5000])
    assert "model.keras is damaged" in error_of(capsys, tmp_path / "unfinished")
    (tmp_path / "unfinished" / "model.keras").write_bytes((trained_run / "model.keras").read_bytes())
    assert "preprocess.npz is missing" in error_of(capsys, tmp_path / "unfinished")
    assert not (tmp_path / "unfinished" / "evaluation.json").exists()
    assert error_of(capsys, trained_run, "--weights", "first")

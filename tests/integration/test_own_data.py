"""From a folder of the user's own images to a prediction, with the verbs alone."""

import json
import shutil

import pytest

from pipelines.core import run as runs
from pipelines.core.url import Url
from pipelines.verbs.cli import main
from tests import shapes

NET = ("--model.width", "8", "--epochs", "1", "--batch-size", "20", "--precision", "float32")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_folder_is_trained_on_evaluated_exported_and_predicted(tmp_path, capsys):
    shapes.write(tmp_path / "shapes", 30)
    assert main(["train", "cifar10_19", "--data", "shapes", "--run", "run", *NET]) == 0
    run = runs.open_run(tmp_path / "run")
    assert run.record.data.labels == shapes.CLASSES
    assert run.record.data.shape == (32, 32, 3)
    # Neither the folder nor the shell's directory matters from here on.
    shutil.move(tmp_path / "shapes", tmp_path / "elsewhere")
    assert main(["evaluate", "run"]) == 0
    # Other images, all of which are used, of some of the classes.
    shapes.write(tmp_path / "others", 5, start=50)
    shutil.rmtree(tmp_path / "others" / shapes.CLASSES[0])
    assert main(["evaluate", "run", "--data", "others"]) == 0
    found = json.loads((tmp_path / "run" / "evaluations" / "others" / "evaluation.json").read_text())
    assert (found["split"], found["count"]) == ("all", 5 * (len(shapes.CLASSES) - 1))
    assert [row["count"] for row in found["classes"]] == [0, *[5] * (len(shapes.CLASSES) - 1)]
    assert (tmp_path / "run" / "evaluations" / "others" / "figures" / "confusion.png").exists()
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["split"] == "test"
    (tmp_path / "others" / "square").rename(tmp_path / "others" / "moon")
    bucket = Url("memory://own-data")
    for path in (tmp_path / "others").rglob("*.png"):
        (bucket / path.relative_to(tmp_path).as_posix()).write_bytes(path.read_bytes())
    capsys.readouterr()
    assert main(["evaluate", "run", "--data", f"{bucket}/others"]) == 2
    shown = f"{bucket}/others has classes that run was not trained on: moon. It knows: circle,"
    assert shown in capsys.readouterr().err
    assert main(["export", "run", "--to", "models/shapes"]) == 0
    capsys.readouterr()
    assert main(["predict", "models/shapes", "elsewhere/circle/000.png", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[0])
    assert {one["label"] for one in answer["top"]} == set(shapes.CLASSES)


def test_damaged_images_stop_the_training_before_it_starts(tmp_path, capsys):
    shapes.write(tmp_path / "shapes", 3)
    (tmp_path / "shapes" / "circle" / "cut.png").write_bytes(b"?")
    assert main(["train", "cifar10_19", "--data", "./shapes", "--run", "run", *NET]) == 2
    assert "1 of 10 images cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

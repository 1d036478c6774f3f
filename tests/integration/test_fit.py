"""`highway fit`: from a folder of images to a served answer."""

import json

import pytest

from pipelines.core.run import open_run
from pipelines.verbs.cli import main
from serving import manifest
from tests import shapes


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.slow
def test_a_folder_becomes_a_model(home, capsys):
    shapes.write(home / "shapes", 40)
    assert main(["fit", "shapes", "--minutes", "0.1", "--image-fit", "pad"]) == 0
    said = capsys.readouterr().out
    assert "chosen: inputs of 32 x 32 pixels" in said
    assert "test images right" in said
    assert "highway serve models" in said
    run = open_run(home / "runs" / "shapes")
    assert (run.config.epochs, run.config.image_fit, run.record.state) == (8, "pad", "finished")
    content = manifest.read(home / "models" / "shapes" / "1")
    assert (content.labels, content.pictures) == (shapes.CLASSES, "padded")
    assert content.temperature > 0
    (home / "new.png").write_bytes(shapes.encoded("circle", 1000))
    assert main(["predict", "models/shapes", "new.png", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["top"][0]["label"] in shapes.CLASSES
    # The run directory is never overwritten.
    assert main(["fit", "shapes"]) == 2


@pytest.mark.parametrize(("words", "message"), [(["mnist"], "`highway train`"), (["nowhere"], "no images of your own")])
def test_other_data_are_refused(home, capsys, words, message):
    assert main(["fit", *words]) == 2
    assert message in capsys.readouterr().err

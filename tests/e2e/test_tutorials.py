"""Runs every code block of the tutorials in order, with less to train."""

import re
import shlex
from pathlib import Path

import keras
import pytest

from pipelines.core.run import open_run
from pipelines.verbs.cli import main
from serving import manifest
from tests.digits import all_digits
from tests.endpoint import Endpoint

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = DOCS / "tutorials"
# A few steps of a narrower net are enough to write every file that the pages use.
BUDGET = {
    "highway train demo": "highway train demo --epochs 1 --subset.train 200 --model.width 4",
    "--examples 500": "--examples 50",
    "epochs=10": "epochs=1",
    "--minutes 2": "--minutes 0.1",
    '("shapes", 200,': '("shapes", 40,',
    "--minutes 1\n": "--minutes 0.02\n",
    "--epochs 20": "--epochs 8",
    "zip(digits.images, digits.target, strict=True)": "zip(digits.images[:500], digits.target)",
}


def blocks(page):
    """Returns the language and the text of each code block of a tutorial, or of the walk in another page."""
    path = TUTORIALS / f"{page}.md"
    if path.exists():
        text = path.read_text(encoding="utf-8")
    else:
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8").partition("## Walkthrough\n")[2].partition("\n## ")[0]
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert {language for language, _ in found} <= {"python", "sh", "text"}
    for full, small in BUDGET.items():
        found = [(language, code.replace(full, small)) for language, code in found]
    return [(language, code) for language, code in found if language != "text"]


def run_page(page, names, serve):
    """Runs the blocks of a page in this process, and the endpoint in a separate one."""
    for language, code in blocks(page):
        if language == "python":
            exec(compile(serve(code), f"{page}.md", "exec"), names)
            continue
        for line in code.splitlines():
            program, *words = shlex.split(line, comments=True)
            assert program == "highway"
            if words[0] == "serve":
                serve.start(*words[1:])
            else:
                assert main(words) == 0, line


class PageEndpoint:
    """The endpoint of a page, on a free port instead of the default one."""

    def __init__(self, log):
        self.log, self.endpoint = log, None

    def start(self, models):
        self.endpoint = Endpoint(Path(models).resolve(), self.log)

    def __call__(self, code):
        return code.replace("http://127.0.0.1:8501", self.endpoint.url) if self.endpoint else code


@pytest.fixture
def serve(tmp_path, monkeypatch):
    # Keras numbers the names of layers per process.
    keras.utils.clear_session()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    server = PageEndpoint(tmp_path / "endpoint.log")
    yield server
    if server.endpoint:
        server.endpoint.stop()


@pytest.mark.slow
def test_the_tutorials_from_the_first_model_to_the_endpoint(serve, tmp_path):
    run_page("first-model", {}, serve)
    for name in ("evaluation.json", "analysis/analysis.md", "figures/gates.png"):
        assert (tmp_path / "runs" / "first" / name).is_file()
    names = {"__name__": "tutorial"}
    run_page("run-to-endpoint", names, serve)
    assert (tmp_path / "models" / "first" / "1" / "model.onnx").is_file()
    assert (tmp_path / "predictions.parquet").is_file()
    assert names["answer"].version == 1
    assert len(names["answer"].predictions[0].gates) == 8


@pytest.mark.slow
def test_the_tutorial_on_own_layers(serve, tmp_path, capsys):
    names = {"__name__": "tutorial"}
    run_page("own-layer", names, serve)
    assert len(names["images"]) == len(all_digits()[0])
    printed = re.findall(r"^(gate/\w+) +([\d.]+) -> ([\d.]+)$", capsys.readouterr().out, re.MULTILINE)
    layers = ["conv_highway", "lower", "upper", *(f"stack_{number:02}" for number in range(1, 11))]
    assert [name.removeprefix("gate/") for name, _, _ in printed] == layers
    assert list(names["lesions"].layout.layers) == layers
    assert (tmp_path / "mine.keras").is_file()


@pytest.mark.slow
def test_the_tutorial_on_own_images(serve, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The page has more images than this test.
    monkeypatch.setattr("pipelines.fit.fit.CALIBRATED", 5)
    names = {"__name__": "tutorial"}
    run_page("own-images", names, serve)
    said = capsys.readouterr().out
    assert said.count("damaged: ") == 2
    assert "chosen: inputs of 32 x 32 pixels" in said
    assert "test images right" in said
    assert "highway serve models" in said
    run = open_run(tmp_path / "runs" / "shapes")
    # As many as this machine has time for.
    assert f"{run.config.epochs} epochs of about" in said
    assert (run.config.image_fit, run.record.state) == ("pad", "finished")
    content = manifest.read(tmp_path / "models" / "shapes" / "1")
    assert (content.labels, content.pictures) == (tuple(names["SIDES"]), "padded")
    assert content.temperature > 0
    # The run directory is never overwritten.
    assert main(["fit", "shapes"]) == 2
    assert (tmp_path / "runs" / "shapes" / "evaluations" / "newer" / "evaluation.json").is_file()
    assert names["answer"].predictions[0].top[0].label in names["SIDES"]


@pytest.mark.slow
def test_the_tutorial_on_own_tables(serve, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = {"__name__": "tutorial"}
    run_page("own-table", names, serve)
    said = capsys.readouterr().out
    assert "rows: 278 train, 51 validation, 71 test" in said
    assert "42 rows, of which the first 20 are shown; MAE" in said
    assert (tmp_path / "runs" / "patients" / "evaluations" / "newer_csv" / "evaluation.json").is_file()
    assert names["answer"].target == "progression"
    assert all(25 < prediction.value < 350 for prediction in names["answer"].predictions)


@pytest.mark.slow
def test_the_walk_over_sets_that_scikit_learn_ships(serve, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = {"__name__": "walk"}
    run_page("your-data", names, serve)
    said = capsys.readouterr().out
    assert "test rows right" in said
    assert "178 rows, of which the first 20 are shown; accuracy " in said
    assert names["image"].predictions[0].top[0].label == "3"
    assert names["row"].target == "target"
    assert names["row"].predictions[0].top[0].label == "setosa"
    for name, classes in (("digits", 10), ("iris", 3), ("wine", 3)):
        assert len(manifest.read(tmp_path / "models" / name / "1").labels) == classes

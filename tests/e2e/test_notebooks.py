"""Runs every cell of the notebooks in order."""

import json
from pathlib import Path

import keras
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def cells(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 4)
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch, mnist_5k, capsys):
    # Keras numbers the names of layers per process.
    keras.utils.clear_session()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(mnist_5k))
    names = {"__name__": "notebook"}
    for code in cells(path):
        # The notebook trains for longer.
        exec(compile(code.replace('"epochs": 4', '"epochs": 2'), path.name, "exec"), names)
    said = capsys.readouterr().out
    assert "stopped" in said
    assert "test images are right" in said
    assert names["result"].accuracy > 0.5


def test_notebooks_are_stored_without_outputs():
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook["cells"])

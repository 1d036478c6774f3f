"""Every Python example of the library's pages runs, and docs/library.md shows each name at the top level."""

import re
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import highway_keras

DOCS = Path(__file__).parents[2] / "docs"
# Run by test_tutorials.py, test_how_to_add.py and tests/unit/serving/test_examples.py.
OTHERS = {DOCS / "how-to-add.md", DOCS / "serving.md", *DOCS.glob("tutorials/*.md")}


def examples(page):
    """Returns the Python blocks of a page, without those of a walk, which test_tutorials.py runs with its commands."""
    text = re.sub(r"^## Walkthrough\n.*?(?=^## )", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(page, names, full="", small=""):
    """Runs the examples of a page in one namespace, with one phrase replaced."""
    for code in examples(DOCS / page):
        exec(compile(code.replace(full, small) if full else code, page, "exec"), names)
    return names


def test_each_public_name_has_an_example():
    used = set(re.findall(r"highway_keras\.(\w+)", "\n".join(examples(DOCS / "library.md"))))
    assert used == {name for name in highway_keras.__all__ if name != "__version__"}


def test_the_examples_run(capsys):
    run("library.md", {"__name__": "library"})
    printed = capsys.readouterr().out
    assert "stack_28 (4, 16)" in printed
    assert "int8_from_float32 ['bias', 'transform_bias', 'lora_kernel_a'" in printed


def test_the_examples_of_other_pages_run(capsys, monkeypatch):
    # The program at the end takes the depth from its command line.
    monkeypatch.setattr(sys, "argv", ["first_step.py", "2"])
    names = {"keras": keras, "highway_keras": highway_keras, "images": np.zeros((8, 784)), "targets": np.zeros((8, 10))}
    names = run("depth.md", names, "HighwayStack(1000", "HighwayStack(2")
    assert [layer.name for layer in names["single"].layers if isinstance(layer, highway_keras.Highway)]
    assert float(capsys.readouterr().out.splitlines()[-1]) > 0
    run("api/README.md", {})
    assert run("models.md", {})["other"].output_shape == (None, 3)
    assert run("your-data.md", {})["small"]((8, 8, 1), 3).output_shape == (None, 3)

    rng = np.random.default_rng(0)
    inputs = outputs = rng.normal(size=(4, 512)).astype("float32")
    file = {}
    for number in range(2):
        weight, bias = rng.normal(0, 0.05, (1024, 512)).astype("float32"), rng.normal(size=1024).astype("float32")
        name = f"encoder.highway._layers.{number}"
        file |= {f"{name}.weight": weight, f"{name}.bias": bias}
        hidden, carry = np.split(outputs @ weight.T + bias, 2, axis=-1)
        carry = 1 / (1 + np.exp(-carry))
        outputs = carry * outputs + (1 - carry) * np.maximum(hidden, 0)
    names = run("api/weights.md", {"file": file, "x": inputs, "y": outputs}, '"encoder.safetensors"', "file")
    np.testing.assert_allclose(names["stack"](inputs), outputs, atol=1e-4)


def test_no_page_with_examples_is_left_out():
    pages = {page for page in DOCS.rglob("*.md") if examples(page)}
    names = ("library", "depth", "models", "your-data", "where-to-run", "api/README", "api/weights")
    assert pages - OTHERS == {DOCS / f"{name}.md" for name in names}


@pytest.mark.slow
def test_a_notebook_trains_without_a_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # The page trains for longer.
    run("where-to-run.md", {}, '"epochs": 4', '"epochs": 2')
    assert 0.5 < float(capsys.readouterr().out.splitlines()[-1]) <= 1

"""What the README shows is run as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language, word):
    """The one code block of a language that contains a word."""
    (found,) = [code for code in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if word in code]
    return found


def run(words, home):
    """Runs a command in an empty home, with the programs of this environment in the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": ""}
    environment.pop("TFDS_DATA_DIR", None)
    done = subprocess.run(words, env=environment, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_library_example_prints_the_gates_of_every_layer(tmp_path):
    printed = run([sys.executable, "-c", block("python", "ConvHighway")], tmp_path)
    shapes = [line.partition("(")[2].partition(")")[0] for line in printed.splitlines()]
    assert shapes == ["2, 24, 24, 16", "2, 576"]


def test_the_commands_of_the_program_work_in_their_order(tmp_path):
    commands = block("sh", "highway train").replace("source .venv/bin/activate\n", "")
    run(["bash", "-euc", commands], tmp_path)
    for name in ("runs/short/evaluation.json", "models/short/1/model.onnx", "predictions.parquet"):
        assert (tmp_path / name).is_file()


def test_every_verb_is_in_the_readme():
    from pipelines.cli import VERBS

    listed = re.findall(r"^- `highway (\w+)", README, re.MULTILINE)
    assert listed == list(VERBS)

"""What the README shows works as it stands."""

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


def test_the_commands_of_the_program_are_those_of_the_tutorials():
    """They are run by test_tutorials.py."""
    pages = [(ROOT / "docs" / "tutorials" / f"{name}.md").read_text() for name in ("first-model", "run-to-endpoint")]
    taught = [
        line for page in pages for code in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in code.split("\n")
    ]
    shown = block("sh", "highway train").splitlines()
    assert shown[0] == "source .venv/bin/activate"
    assert [line for line in taught if line in shown[1:]] == shown[1:]


def test_every_verb_is_in_the_readme():
    from pipelines.verbs.cli import VERBS

    listed = re.findall(r"^- `highway (\w+)", README, re.MULTILINE)
    assert listed == list(VERBS)

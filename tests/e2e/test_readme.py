"""The README's library example runs, and its commands and verbs are those of the tutorials and the program."""

import re
from pathlib import Path

from pipelines.verbs.cli import VERBS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language, word):
    """Returns the one code block of a language that contains a word."""
    (found,) = [code for code in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if word in code]
    return found


def test_the_library_example_prints_the_gates_of_every_layer(capsys):
    exec(compile(block("python", "ConvHighway"), "README.md", "exec"), {"__name__": "readme"})
    shapes = [line.partition("(")[2].partition(")")[0] for line in capsys.readouterr().out.splitlines()]
    assert shapes == ["2, 24, 24, 16", "2, 576"]


def test_the_tutorials_run_the_commands_of_the_program():
    # test_tutorials.py runs them.
    pages = [(ROOT / "docs" / "tutorials" / f"{name}.md").read_text() for name in ("first-model", "run-to-endpoint")]
    taught = [
        line for page in pages for code in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in code.split("\n")
    ]
    shown = block("sh", "highway train").splitlines()
    assert shown[0] == "source .venv/bin/activate"
    assert [line for line in taught if line in shown[1:]] == shown[1:]


def test_every_verb_is_in_the_readme():
    assert re.findall(r"^- `highway (\w+)", README, re.MULTILINE) == list(VERBS)

"""Every `highway` command of the guides is one that its verb accepts, with the arguments that it has there.

The commands of the tutorials are run by tests/e2e/test_tutorials.py, those of `make demo` by CI.
"""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from pipelines.core.errors import UserError
from pipelines.verbs import train, tune
from pipelines.verbs.cli import VERBS

ROOT = Path(__file__).parents[4]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Names that the pages ask their readers to make.
MADE = re.compile(r"\bmy[-_]\w+")


def commands():
    """Yields the words after `highway` of each command."""
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if "highway" in words and not MADE.search(line):
                    start = words.index("highway")
                    # Before it, there are only variables.
                    assert all("=" in word for word in words[:start]), line
                    yield pytest.param(words[start + 1 :], id=f"{page.stem}: {' '.join(words[start:])}")


class ParsedError(Exception):
    """The arguments are accepted; without it, the verb would start."""


@pytest.mark.parametrize("words", [*commands()])
def test_a_verb_accepts_the_command(words, monkeypatch):
    verb, *arguments = words
    assert verb in VERBS
    if verb in ("train", "tune"):
        # A recipe may be a file that does not exist here.
        parse = {"train": train.parse_train, "tune": tune.parse_tune}[verb]
        if arguments[0].endswith(".json"):
            with pytest.raises(UserError, match=re.escape(arguments[0])):
                parse(arguments)
        else:
            assert parse(arguments)
        return
    module = importlib.import_module(f"pipelines.verbs.{verb}")
    real = module.parse

    def only_parse(*given):
        assert real(*given)
        raise ParsedError

    monkeypatch.setattr(module, "parse", only_parse)
    with pytest.raises(ParsedError):
        module.main(arguments)


def test_there_are_commands():
    assert {one.values[0][0] for one in commands()} >= {"train", "tune", "reproduce", "export", "release", "serve"}

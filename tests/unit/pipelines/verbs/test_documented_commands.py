"""Every `highway` command in the documentation is one that its verb accepts, and `make` targets and benchmarks exist.

tests/e2e/test_tutorials.py also runs the commands of the tutorials, and CI runs those of `make demo`.
"""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS
from pipelines.core.errors import UserError
from pipelines.verbs import train, tune
from pipelines.verbs.cli import VERBS

ROOT = Path(__file__).parents[4]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
# Names that the pages ask their readers to make.
MADE = re.compile(r"\bmy[-_]\w+")
# Words of the shell before a command.
BEFORE = {"else", "exec", "srun", "then"}
# A word for which readers insert their own.
PLACEHOLDER = re.compile(r"^(?:[A-Z:]+(?:\|\w+)*|.*(?:\.\.\.|\$).*)$")


def split(line: str) -> Iterator[list[str]]:
    """Yields the words of each command in a line of the shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set(";&"):
            yield words
            words = []
        else:
            words.append(word)
    yield words


def lines():
    """Yields the name of a page, a line of shell code or a piece of inline code, and whether it is inline."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                yield page.stem, line, False
        text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        for code in re.findall(r"`([^`]+)`", text):
            yield page.stem, " ".join(code.split()), True


def commands():
    """Yields the words after `highway` of each command."""
    seen = set()
    for page, line, inline in lines():
        if not re.search(r"\bhighway [a-z]", line) or MADE.search(line):
            continue
        for words in split(line):
            if "highway" not in words:
                continue
            start = words.index("highway")
            command = words[start + 1 :]
            if inline:
                # A verb with a single word names an option or a command in general.
                if len(command) < 3 or "--help" in command or any(map(PLACEHOLDER.match, command)):
                    continue
            else:
                assert all("=" in word or word in BEFORE for word in words[:start]), line
                if any("$" in word for word in command):
                    continue
            if tuple(command) not in seen:
                seen.add(tuple(command))
                yield pytest.param(command, id=f"{page}: {' '.join(words[start:])}")


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


def test_make_targets_and_benchmarks_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named, benchmarks = set(), set()
    for _, line, _ in lines():
        for words in split(line) if re.match(r"make [a-z]", line) else ():
            named |= {word for word in words[1:] if "=" not in word}
            for word in words:
                benchmarks |= set(word.removeprefix("BENCH=").split()) if word.startswith("BENCH=") else set()
    assert len(named) > 8
    assert named <= targets
    assert len(benchmarks) > 10
    assert benchmarks - {"--quick"} <= {one.name for one in BENCHMARKS}

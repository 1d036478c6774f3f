"""The documentation that people write: it names every public module, and keeps one form."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import highway_keras

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Pages of single studies are written by code.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md"), *DOCS.glob("*/*.md")]
# Characters in a line of prose.
WIDTH = 120


def has_public_names(module):
    """Whether a module is a package that exports something, or one that users import by its own name."""
    source = Path(importlib.import_module(module).__file__).read_text(encoding="utf-8")
    return re.search(r" import (\w+) as \1$", source, re.MULTILINE) is not None


def test_the_reference_has_every_public_module():
    shown = set(
        re.findall(r"^::: ([\w.]+?)(?:\.\*)?$", "\n".join(map(Path.read_text, DOCS.glob("api/*.md"))), re.MULTILINE)
    )
    packages = [
        name for _, name, is_package in pkgutil.iter_modules(highway_keras.__path__, "highway_keras.") if is_package
    ]
    assert {name for name in packages if has_public_names(name)} <= shown
    modules = {name for name in highway_keras.__all__ if hasattr(getattr(highway_keras, name), "__file__")}
    assert {f"highway_keras.{name}" for name in modules} <= shown


def test_its_overview_has_every_name_of_the_top_level():
    overview = (DOCS / "api" / "README.md").read_text(encoding="utf-8")
    assert all(f"highway_keras.{name}" in overview for name in highway_keras.__all__ if not name.startswith("_"))


def test_the_citation_is_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [highway_keras.__version__]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_numbers_and_lines_have_one_form(page):
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```|`[^`]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not re.findall(r"\d %|\+-|\b[1-9]\d? \d{3}\b", prose)
    free = ("|", "![", "`", "- `", "  `", "(`", "*`")
    lines = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()
    assert [line for line in lines if len(line) > WIDTH and not line.startswith(free)] == []

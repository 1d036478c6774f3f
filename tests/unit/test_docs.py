"""The hand-written documentation: complete reference, valid links, one form for numbers and lines."""

import contextlib
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import highway_keras

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Pages of single studies are written by code.
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("*/*.md")]
# The maximum length of a line of prose.
WIDTH = 120


def public_names(module):
    """Returns the public functions and classes of a module, or those that a package exports from its own modules."""
    return {
        f"{module.__name__}.{name}"
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and f"{value.__module__}.".startswith(f"{module.__name__}.")
    }


def test_the_reference_has_every_public_name():
    directives = re.findall(r"^::: (\S+)$", "\n".join(map(Path.read_text, DOCS.glob("api/*.md"))), re.MULTILINE)
    shown = {name for name in directives if not name.endswith(".*")}
    for name in shown.copy():
        with contextlib.suppress(ModuleNotFoundError):
            shown |= public_names(importlib.import_module(name))
    for name in (name.removesuffix(".*") for name in directives if name.endswith(".*")):
        # As docs/site.py expands it.
        source = Path(importlib.import_module(name).__file__).read_text(encoding="utf-8")
        shown |= {f"{name}.{alias}" for alias in re.findall(r" import (\w+) as \1$", source, re.MULTILINE)}
    packages = [
        importlib.import_module(name)
        for _, name, is_package in pkgutil.iter_modules(highway_keras.__path__, "highway_keras.")
        if is_package
    ]
    values = {name: getattr(highway_keras, name) for name in highway_keras.__all__ if name != "__version__"}
    modules = [*packages, *filter(inspect.ismodule, values.values())]
    assert modules
    assert set().union(*map(public_names, modules)) <= shown
    assert {name for name, value in values.items() if not inspect.ismodule(value)} <= {
        name.rpartition(".")[2] for name in shown
    }


def test_the_overview_has_every_name_of_the_top_level():
    overview = (DOCS / "api" / "README.md").read_text(encoding="utf-8")
    assert all(f"highway_keras.{name}" in overview for name in highway_keras.__all__ if not name.startswith("_"))


def test_the_citation_has_the_current_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [highway_keras.__version__]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_numbers_and_line_widths_follow_the_conventions(page):
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```|`[^`]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not re.findall(r"\d %|\+-|\b[1-9]\d? \d{3}\b", prose)
    free = ("|", "![", "`", "- `", "  `", "(`", "*`")
    lines = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()
    assert [line for line in lines if len(line) > WIDTH and not line.startswith(free)] == []


def anchors(page):
    """Returns the anchors that GitHub and the site derive from a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_within_the_repository_exist(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_every_figure_and_table_is_linked_by_a_page():
    links = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"\]\(([^)\s#]+)\)", page.read_text(encoding="utf-8"))
    }
    files = [*DOCS.glob("images/*"), *DOCS.glob("benchmarks/*")]
    assert len(files) > 10
    assert [file.name for file in files if file not in links] == []


def test_the_files_that_how_to_add_names_exist():
    page = (DOCS / "how-to-add.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"\b(?:highway_keras|pipelines|serving|tests)/[\w/]+(?:\.py|/)?", page))
    named = {path for path in paths if "my_" not in path and "FAMILY" not in path}
    assert len(named) > 15
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_names_that_how_to_add_gives_are_in_the_files():
    page = (DOCS / "how-to-add.md").read_text(encoding="utf-8")
    checked = 0
    for text in re.split(r"^\d+\. ", page, flags=re.MULTILINE)[1:]:
        item = re.split(r"\n\n|^#", text, flags=re.MULTILINE)[0]
        paths = [
            ROOT / path for path in re.findall(r"`((?:highway_keras|pipelines|serving|tests)/[\w/]+(?:\.py|/)?)`", item)
        ]
        folders = {path if path.is_dir() else path.parent for path in paths}
        files = {path for path in paths if path.is_file()}
        for name in re.findall(r"`(\w+\.py)`", item):
            found = [folder / name for folder in folders if (folder / name).exists()]
            assert found, name
            files.update(found)
        texts = [path.read_text(encoding="utf-8") for path in files]
        for name in re.findall(r"`(_?[A-Z][A-Z_]+)`", item):
            assert any(re.search(rf"^{name}\b", code, re.MULTILINE) for code in texts), name
            checked += 1
    for path, function in re.findall(r"`(tests/[\w/]+\.py)`[^`]+(?:`[^`]+`[^`]+)*?in its function\s+`(\w+)`", page):
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), function
        checked += 1
    assert checked > 6

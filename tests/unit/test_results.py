"""The pages of docs/results are whole: each says what was run and how, and shows its figures."""

import csv
import re
from pathlib import Path

import pytest

from pipelines import studies

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGES = sorted(RESULTS.glob("*/README.md"))


def made(page):
    """The table that tells how a page was made."""
    return dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", page.partition("## How it was made")[2], re.MULTILINE))


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_a_page_tells_how_it_was_made(path):
    page = path.read_text(encoding="utf-8")
    rows = made(page)
    # A page of one net of a study is named for both.
    study, _, arm = path.parent.name.removeprefix(rows["study"]).partition("-")
    assert study == ""
    assert not arm or re.search(rf"--arms {arm}[ `]", rows["page made by"])
    assert "pipelines reproduce" in rows["command"]
    assert re.search(rf"reproduce {rows['study']}[ `]", rows["page made by"])
    assert re.findall(r"\b[0-9a-f]{40}\b", rows["commit"])
    assert "with changes" not in rows["commit"] + rows["page made by"]
    assert all(rows[name] for name in ("hardware", "wall time", "versions", "precision"))
    assert "seeds" in rows
    # It speaks of no machine but in general words.
    assert not re.search(r"(?<![\w.])/(home|tmp|root|work|Users)/", page)
    assert page.partition("## What differs from the source")[2].strip()


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_its_files_are_there_and_no_others(path):
    shown = set(re.findall(r"\]\(([\w./-]+)\)", path.read_text(encoding="utf-8")))
    there = {str(file.relative_to(path.parent)) for file in path.parent.rglob("*") if file.is_file()}
    assert there == {"README.md", *shown}


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_a_short_schedule_is_told_under_every_figure(path):
    with (path.parent / "results.csv").open(newline="") as file:
        labels = {row.get("schedule", "") for row in csv.DictReader(file)}
    assert len(labels) == 1
    page, label = path.read_text(encoding="utf-8"), labels.pop()
    assert page.count(label) >= page.count("![") if label else "short schedule" not in page


def test_the_first_page_names_every_study():
    first = (RESULTS / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\(([\w-]+)/README\.md\)", first))
    assert shown == {path.parent.name for path in PAGES}
    assert set(re.findall(r"^\| \[?`([\w-]+)`", first, re.MULTILINE)) == set(studies.names())

"""The pages of docs/results: each is complete, and the overview has the labels of the pages."""

import csv
import re
from pathlib import Path

import pytest

from pipelines import studies
from pipelines.core.markdown import wrapped
from tests.pages import unwrapped

RESULTS = Path(__file__).parents[2] / "docs" / "results"
OVERVIEW = RESULTS / "README.md"
PAGES = sorted(RESULTS.glob("*/README.md"))


def provenance(page):
    """Returns the table "How it was made"."""
    return dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", page.partition("## How it was made")[2], re.MULTILINE))


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_every_page_states_its_provenance(path):
    page = path.read_text(encoding="utf-8")
    rows = provenance(page)
    # A page of one net of a study is named after both, and so is that of a schedule besides the page of the study.
    study, _, part = path.parent.name.removeprefix(rows["study"]).partition("-")
    assert study == ""
    assert not part or re.search(rf"--(arms|schedule) {part}[ `]", rows["page made by"])
    assert re.search(r"\b(pipelines|highway) reproduce ", rows["command"])
    assert re.search(rf"reproduce {rows['study']}[ `]", rows["page made by"])
    assert re.findall(r"\b[0-9a-f]{40}\b", rows["commit"])
    assert "with changes" not in rows["commit"] + rows["page made by"]
    assert all(rows[name] for name in ("hardware", "wall time", "versions", "precision"))
    assert "seeds" in rows
    # No paths of the machine that it ran on.
    assert not re.search(r"(?<![\w.])/(home|tmp|root|work|Users)/", page)
    assert page.partition("## What differs from the source")[2].strip()


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_the_folder_of_a_page_has_exactly_its_files(path):
    shown = set(re.findall(r"\]\(([\w./-]+)\)", path.read_text(encoding="utf-8")))
    there = {str(file.relative_to(path.parent)) for file in path.parent.rglob("*") if file.is_file()}
    assert there == {"README.md", *shown}


def results(path):
    """Returns the rows of results.csv, and the label that all of them have."""
    with (path.parent / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    (label,) = {row.get("schedule", "") for row in rows}
    return rows, label


def defined(path):
    """Returns the study of a page, on the schedule that its label names."""
    study = studies.get(provenance(path.read_text(encoding="utf-8"))["study"])
    return study.short if study.short and results(path)[1].startswith("short schedule: ") else study


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_the_label_of_a_page_is_on_every_table_and_figure(path):
    page, (_, label) = unwrapped(path.read_text(encoding="utf-8")), results(path)
    if not label:
        assert "short schedule" not in page
        return
    assert f"\n\n**{label[0].upper()}{label[1:]}.** " in page
    # The last table is that of the provenance.
    assert page.count(f" ({label}).*") + page.count(f"({label})*") == page.count("\n\n|") - 1 + page.count("![")


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_a_page_has_the_words_of_its_study(path):
    # So that the next run does not undo what was corrected on the page. A page may add to a difference, or add one.
    page, study = unwrapped(path.read_text(encoding="utf-8")), defined(path)
    assert page.startswith(f"# {study.title}\n")
    assert f"\n\n{study.asks[0].upper()}{study.asks[1:]} Source: {study.source}.\n" in page
    differences = re.findall(r"^- (.+)$", page.partition("## What differs from the source")[2], re.MULTILINE)
    assert [one for one in study.differs if not any(found.startswith(one) for found in differences)] == []


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_fewer_seeds_than_the_study_defines_are_labelled(path):
    (rows, label), study = results(path), defined(path)
    if study.search:
        assert "settings of each net" in label
    else:
        seeds = len({row["seed"] for row in rows})
        assert (f"{seeds} of " in label) == (seeds < study.seeds)


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_paragraphs_are_wrapped_as_by_the_code(path):
    page = path.read_text(encoding="utf-8")
    assert page == wrapped(page.rstrip("\n")) + "\n"


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_spreads_are_explained_only_where_there_are_any(path):
    for above, note in re.findall(r"((?:^\|.*\n)+)\n\*(.+)\*$", unwrapped(path.read_text("utf-8")), re.MULTILINE):
        assert ("±" in note) <= ("±" in above)
        assert ("n = runs" in note) <= bool(re.search(r"± [\d.]+, n = \d", above))


def overview():
    """Returns the run and the result of each study in the overview, which links those that have been run."""
    cells = re.findall(r"^\| \[?`([\w-]+)`.*? \| .*? \| (.*?) \| (.*) \|$", OVERVIEW.read_text("utf-8"), re.MULTILINE)
    return {name: (run, result) for name, run, result in cells}


@pytest.mark.parametrize("name", studies.names())
def test_the_overview_has_the_label_of_the_page(name):
    if not (RESULTS / name).exists():
        assert overview()[name][0].startswith("not run yet")
        return
    rows, label = results(RESULTS / name / "README.md")
    seeds = len({row["seed"] for row in rows}) if "seed" in rows[0] else 0
    assert overview()[name][0] == (label or f"{seeds} seed{'s' if seeds > 1 else ''}")


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_numbers_follow_the_conventions(path):
    prose = re.sub(r"`[^`]*`", "", path.read_text(encoding="utf-8"))
    assert not re.findall(r"\d %|\+-|R\^2|\b[1-9]\d{0,2} \d{3}\b(?!\.)", prose)


def test_the_overview_links_every_page():
    shown = set(re.findall(r"\]\(([\w-]+)/README\.md\)", OVERVIEW.read_text(encoding="utf-8")))
    assert shown == {path.parent.name for path in PAGES}

import csv
from dataclasses import replace

import pytest

from pipelines.studies.framework.figures import FigureFile
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Counts, Published, Study
from pipelines.studies.framework.tables import Table, measured, spread
from pipelines.studies.run import page
from tests.toy_data import toy_config
from tests.unit.pipelines.studies.fake import result

LABEL = "short schedule, budget 0.1: 1 of 3 seeds"


def make_tables(results):
    known = STUDY.arms["a"].published
    cells = (
        measured(results.accuracies("a"), len(results.of("a"))),
        spread(known.best, known.mean, known.std, known.count),
    )
    return [Table("Accuracy", ("ours", "source"), (cells,), "in percent")]


def draw_figures(results, figures):
    with figures.figure("scores", (4, 3), "Scores", f"{len(results.all)} runs.") as figure:
        figure.subplots().plot([one.seed for one in results.all])


STUDY = Study(
    name="toy",
    title="A toy",
    source="nobody",
    asks="is it a toy?",
    arms={"a": Arm(config=toy_config(), published=Published.of(0.9), data=Counts(train=200, test=60))},
    seeds=3,
    differs=("Everything.",),
    tables=make_tables,
    draw=draw_figures,
)


@pytest.fixture
def results(tmp_path):
    scores = [0.9, None, 0.8]
    return Results(result("a", toy_config(), seed, score, tmp_path) for seed, score in enumerate(scores))


def test_the_page_names_nets_with_fewer_runs(tmp_path):
    both = replace(STUDY, arms=dict.fromkeys("ab", STUDY.arms["a"]))
    some = [result(arm, toy_config(), seed, 0.9, tmp_path) for arm, seed in (("a", 0), ("a", 1), ("b", 0))]
    page.write(tmp_path, both, Results(some), "")
    assert "**Fewer runs of b (1)** than of the other nets." in (tmp_path / "README.md").read_text()


def test_a_row_for_each_run(tmp_path, results):
    page.write(tmp_path, STUDY, results, "")
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["arm"], row["seed"], row["state"], row["test_accuracy"]) for row in rows] == [
        ("a", "0", "finished", "0.9"),
        ("a", "1", "diverged", ""),
        ("a", "2", "finished", "0.8"),
    ]
    assert rows[0]["run"] == "runs/a-seed-0"
    assert (rows[0]["test_examples"], rows[0]["examples"], rows[0]["steps"]) == ("1000", "6000", "552")
    assert "schedule" not in rows[0]


def test_the_page_has_results_next_to_the_source_and_their_provenance(tmp_path, results):
    page.write(tmp_path, STUDY, results, "")
    text = (tmp_path / "README.md").read_text()
    assert "| 90.00 (85.00 ± 7.07, n = 2, 1 more diverged) | 90.00 (n = 1) |" in text
    assert "**Diverged: a-seed-1.** Means and medians in the tables are over the other runs." in text
    assert "![Scores](figures/scores.png)\n\n*3 runs.*" in text
    assert "| command | `highway reproduce toy` |" in text
    assert f"| commit | {'c' * 40} |" in text
    assert "| seeds | 0, 1, 2 |" in text
    assert "| hardware | 2 cores of Some CPU (avx2) |" in text
    assert "| wall time | 1:30 of training and validation" in text
    assert "keras 3.15.1; backend tensorflow" in text
    assert "- Everything." in text
    assert "short schedule" not in text


def test_the_label_is_on_the_page_every_table_and_every_figure(tmp_path, results):
    page.write(tmp_path, STUDY, results, LABEL)
    text = (tmp_path / "README.md").read_text()
    assert f"**{LABEL.capitalize()}.**" in text
    assert f"*In percent ({LABEL}).*" in text
    assert f"*3 runs. ({LABEL})*" in text
    with (tmp_path / "results.csv").open(newline="") as file:
        assert {row["schedule"] for row in csv.DictReader(file)} == {LABEL}


def test_a_table_without_a_note_is_labelled_too(results):
    bare = Table("Accuracy", ("ours",), (("1",),))
    study = Study(**{**vars(STUDY), "tables": lambda _: [bare]})
    assert f"| 1 |\n\n*({LABEL}).*" in page.text(study, results, [], LABEL)
    assert "| 1 |\n\n## How" in page.text(study, results, [], "")


def test_omitted_arms_are_listed(results):
    assert "Not run" not in page.text(STUDY, results, [], "")
    arms = {"b": STUDY.arms["a"], **STUDY.arms, "c": STUDY.arms["a"]}
    assert "**Not run: b, c.** The tables show dashes (-) for these nets" in page.text(
        replace(STUDY, arms=arms), results, [], ""
    )


def test_paragraphs_are_wrapped_and_tables_are_not(results):
    table = Table("Accuracy", ("ours",), (("1 " * 100,),), "note " * 50)
    study = replace(STUDY, tables=lambda _: [table], differs=("why " * 40,))
    lines = page.text(study, results, [], "").splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []
    assert [len(line) > 120 for line in lines if line.startswith("| 1 ")] == [True]
    assert "  why why" in "\n".join(lines)


def test_common_properties_of_the_runs_are_stated_once(tmp_path):
    first, second = (result("a", toy_config(), seed, 0.9, tmp_path) for seed in range(2))
    second.run.record = second.run.record.model_copy(update={"command": "highway reproduce toy --workers 2"})
    text = page.text(STUDY, Results([first, second]), [], "")
    assert "| command | `highway reproduce toy`; `highway reproduce toy --workers 2` |" in text


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("highway reproduce bias", "highway reproduce bias"),
        ("highway reproduce bias --to '/home/me/my runs' --seeds 1", "highway reproduce bias --seeds 1"),
        ("highway reproduce bias --to=here --data-dir ~/data --arms a b", "highway reproduce bias --arms a b"),
        ("highway reproduce bias --to", "highway reproduce bias"),
    ],
)
def test_a_command_names_no_folder(command, left):
    assert page.repeatable(command) == left


def test_seeds_are_listed_unless_they_follow_one_another():
    assert page.numbered(range(36)) == "0 to 35"
    assert [page.numbered(range(count)) for count in (1, 3, 4)] == ["0", "0, 1, 2", "0 to 3"]
    assert page.numbered([0, 1, 2, 4, 5]) == "0, 1, 2, 4, 5"


def test_a_figure_without_a_caption_has_none_but_the_label(results):
    figures = [FigureFile("a.png", "A", "")]
    assert "](figures/a.png)\n\n## How" in page.text(STUDY, results, figures, "")
    assert f"](figures/a.png)\n\n*({LABEL})*" in page.text(STUDY, results, figures, LABEL)


def test_the_time_of_a_single_run_is_stated_once():
    assert page._time([90.0]) == "1:30 of training and validation"
    assert page._time([30.0, 90.0]).endswith("; per run 0:30 to 1:30, median 1:00")

"""Learning rates by held-out accuracy, and times of a step."""

from pipelines.studies.framework.figures import Figures
from pipelines.studies.papers.conv_gate import tuning
from pipelines.studies.papers.conv_gate.study import STUDY
from tests.unit.pipelines.studies.papers.conv_gate.conv_gate_runs import made

SHORT = STUDY.short
ACCURACIES = {"0.1": 0.91, "0.2": 0.93, "0.4": 0.92, "0.8": None}
SECONDS = {"highway": 4.6, "residual": 2.3, "plain": 2.0}


def results(path, **options):
    return made(
        SHORT,
        path,
        lambda arm: ACCURACIES[arm.rpartition("-")[2]],
        seconds=lambda arm: SECONDS[arm.partition("-")[0]],
        seeds=1,
        **options,
    )


def test_the_rate_with_the_best_held_out_accuracy_is_chosen(tmp_path):
    found = results(tmp_path)
    rates, _ = SHORT.tables(found)
    assert rates.head == ("net", "0.1", "0.2", "0.4", "0.8", "best")
    assert rates.rows[0] == ("highway", "91.00 (n = 1)", "93.00 (n = 1)", "92.00 (n = 1)", "diverged (n = 1)", "0.2")
    assert [tuning.best_rate(found, net) for net in tuning.NETS] == [0.2] * 3


def test_the_first_epoch_does_not_count_as_time(tmp_path):
    _, times = SHORT.tables(results(tmp_path))
    # The first epoch took 30 s, for 46 steps.
    assert times.rows == (
        ("highway", "100", "100.00", "20"),
        ("residual", "100", "50.00", "40"),
        ("plain", "100", "43.48", "46"),
    )


def test_a_part_of_the_runs_has_a_page_too(tmp_path):
    found = results(tmp_path, arms=("plain-0.4",))
    rates, times = SHORT.tables(found)
    assert rates.rows[0] == ("highway", *["-"] * 5)
    assert times.rows[0] == ("highway", "-", "-", "-")
    assert times.rows[2] == ("plain", "100", "43.48", "-")
    figures = Figures(tmp_path, SHORT.label)
    SHORT.draw(found, figures)
    assert (tmp_path / figures.files[0].file).stat().st_size > 5000


def test_runs_of_one_epoch_have_no_time_of_a_step(tmp_path):
    found = results(tmp_path)
    for run in found.all:
        object.__setattr__(run, "rows", run.rows[:1])
    assert tuning.step_time(found, "plain") is None

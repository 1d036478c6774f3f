"""Learning rates by held-out accuracy."""

from pipelines.studies.framework.figures import Figures
from pipelines.studies.papers.conv_gate import tuning
from pipelines.studies.papers.conv_gate.study import STUDY
from tests.unit.pipelines.studies.papers.conv_gate.conv_gate_runs import made

SHORT = STUDY.short
ACCURACIES = {"0.2": 0.93, "0.4": 0.92, "0.8": None}


def results(path, **options):
    return made(SHORT, path, lambda arm: ACCURACIES[arm.rpartition("-")[2]], seeds=1, **options)


def test_the_rate_with_the_best_held_out_accuracy_is_chosen(tmp_path):
    found = results(tmp_path)
    (rates,) = SHORT.tables(found)
    assert rates.head == ("net", "0.2", "0.4", "0.8", "best")
    assert rates.rows[0] == ("highway", "93.00 (n = 1)", "92.00 (n = 1)", "diverged (n = 1)", "0.2")
    assert [tuning.best_rate(found, net) for net in tuning.NETS] == [0.2] * 3


def test_a_part_of_the_runs_has_a_page_too(tmp_path):
    found = results(tmp_path, arms=("plain-0.4",))
    (rates,) = SHORT.tables(found)
    assert rates.rows[0] == ("highway", *["-"] * 4)
    assert rates.rows[2] == ("plain", "-", "92.00 (n = 1)", "-", "0.4")
    figures = Figures(tmp_path, SHORT.label)
    SHORT.draw(found, figures)
    assert (tmp_path / figures.files[0].file).stat().st_size > 5000

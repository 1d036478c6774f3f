import io
from dataclasses import replace

from rich.console import Console

from pipelines.tuning.board import picture, summary, time_left

from .plans import toy_plan, toy_state, toy_trial

RUNNING = toy_trial(2, status="running", seconds=0.0, since=100.0)
STATE = toy_state(
    toy_trial(0, 0.5, seconds=10.0),
    toy_trial(1, status="failed", reason="dead gates: all", seconds=20.0),
    RUNNING,
    over=False,
)


def test_the_time_left_counts_what_runs():
    # Two done at 15 s each; six to go, of which one has run for 5 s.
    assert time_left(toy_plan(trials=8), STATE, 1, 105.0) == 6 * 15 - 5
    assert time_left(toy_plan(trials=8), STATE, 2, 105.0) == (6 * 15 - 5) / 2


def test_nothing_is_promised_before_a_trial_is_done_nor_of_hyperband():
    assert time_left(toy_plan(trials=8), toy_state(RUNNING, over=False), 1, 105.0) is None
    assert time_left(toy_plan("hyperband", trials=None), STATE, 1, 105.0) is None


def test_a_search_in_a_line():
    waiting = replace(RUNNING, number="3", status="waiting")
    state = replace(STATE, trials=(*STATE.trials, waiting))
    said = summary(toy_plan(trials=8), state, 1, 105.0)
    assert said == "2 of 8 trials, 1 failed, 1 waiting for a worker, best 0.5 (trial 0), about 1:25 left"


def test_the_table_has_trial_hyperparameters_objective_and_time(tmp_path):
    run = tmp_path / "trials" / "2"
    run.mkdir(parents=True)
    (run / "metrics.csv").write_text("epoch,loss\n1,2.0\n")
    console = Console(file=io.StringIO(), width=120)
    console.print(picture(toy_plan(trials=8), STATE, tmp_path, 1, 105.0))
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("random search over toy, 2 of 8 trials, 1 failed")
    assert lines[1].split() == ["learning", "transform", "val"]
    assert " ".join(lines[2].split()) == "trial rate activation bias epoch accuracy time"
    assert lines[3].split() == ["2", "0.1", "relu", "-2", "1/2", "running", "0:05"]
    assert lines[4].split() == ["0", "0.1", "relu", "-2", "2", "0.5000", "0:10"]
    assert lines[5].split() == ["1", "0.1", "relu", "-2", "dead", "gates", "0:20"]

import io
from dataclasses import replace

import pytest
from rich.console import Console, ConsoleDimensions

from pipelines.tuning.progress import render, summary, time_left

from .plans import SPACE, study_plan, toy_plan, toy_state, toy_trial

RUNNING = toy_trial(2, status="running", seconds=0.0, since=100.0)
STATE = toy_state(
    toy_trial(0, 0.5, seconds=10.0),
    toy_trial(1, status="failed", reason="dead gates: all", seconds=20.0),
    RUNNING,
    over=False,
)


def test_a_search_in_a_line():
    waiting = replace(RUNNING, number="3", status="waiting")
    state = replace(STATE, trials=(*STATE.trials, waiting))
    said = summary(toy_plan(trials=8), state, 1, 105.0)
    assert said == "2 of 8 trials, 1 failed, 1 waiting, best 50.00% (trial 0), about 1:25 left"


def lines_of(plan, state, folder, width, height=40):
    console = Console(file=io.StringIO(), width=width)
    size = ConsoleDimensions(width, height)
    console.print(render(plan, state, folder, 1, now=105.0, size=size))
    return console.file.getvalue().splitlines()


def test_the_table_has_trial_hyperparameters_objective_and_time(tmp_path):
    run = tmp_path / "trials" / "2"
    run.mkdir(parents=True)
    (run / "metrics.csv").write_text("epoch,loss\n1,2.0\n")
    lines = lines_of(toy_plan(trials=8), STATE, tmp_path, 80)
    assert lines[0] == "2 of 8 trials, 1 failed, best 50.00% (trial 0), about 1:25 left"
    assert lines[1].split() == ["learning", "activ-", "gate", "validation"]
    assert lines[2].split() == ["trial", "rate", "ation", "bias", "epoch", "accuracy", "time"]
    assert lines[3].split() == ["2", "0.1", "relu", "-2", "1/2", "running", "0:05"]
    assert lines[4].split() == ["0", "0.1", "relu", "-2", "2", "50.00%", "0:10"]
    assert lines[5].split() == ["1", "0.1", "relu", "-2", "failed", "0:20"]
    assert lines[6] == "failed: 1 x dead gates: all"


def test_a_continued_trial_is_shown_with_the_run_that_it_continues(tmp_path):
    run = tmp_path / "trials" / "0"
    run.mkdir(parents=True)
    (run / "metrics.csv").write_text("epoch,loss\n1,2.0\n2,1.0\n")
    goes_on = replace(RUNNING, epochs=3, before=1, earlier="0")
    state = toy_state(replace(toy_trial(0, 0.5), epochs=1), goes_on, over=False)
    assert "2/3" in lines_of(toy_plan("hyperband", trials=None, epochs=3), state, tmp_path, 80)[3].split()


def test_the_papers_search_fits_on_80_columns(tmp_path):
    values = {"net": "highway-100", "learning_rate": 0.00123, "momentum": 0.0796, "decay": 0.923}
    state = toy_state(*(toy_trial(f"{number:03}", 0.97, seconds=4000.0, **values) for number in range(20)), over=False)
    lines = lines_of(study_plan(0.01), state, tmp_path, 80, 24)
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert "000   highway-100  0.00123 0.0796 0.923 relu     -2     4     97.00% 1:06:40" in lines


def test_omitted_columns_are_named_and_constant_values_have_none(tmp_path):
    space = SPACE.model_copy(update={"activation": ("relu",), "depth": (2, 4), "precision": ("float32", "auto")})
    state = toy_state(toy_trial(0, 0.5, depth=4, precision="float32"))
    plan = toy_plan(space=space)
    wide = lines_of(plan, state, tmp_path, 80)
    assert wide[3].split() == ["0", "0.1", "-2", "4", "float32", "2", "50.00%", "0:10"]
    assert wide[4:] == ["in all trials: activation relu"]
    narrow = lines_of(plan, state, tmp_path, 45)
    assert any(line.split() == ["0", "0.1", "-2", "2", "50.00%", "0:10"] for line in narrow)
    assert narrow[-1].startswith("no room for depth, precision")


def test_the_time_left_counts_running_trials():
    # Two finished in 15 s each; of the remaining six, one has run for 5 s.
    assert time_left(toy_plan(trials=8), STATE, 1, 105.0) == 6 * 15 - 5
    # One worker trains three of the five that have not begun.
    assert time_left(toy_plan(trials=8), STATE, 2, 105.0) == 3 * 15


def test_there_is_no_estimate_before_a_trial_is_done():
    assert time_left(toy_plan(trials=8), toy_state(RUNNING, over=False), 1, 105.0) is None


def test_the_time_left_of_hyperband_is_that_of_the_epochs_left():
    plan = toy_plan("hyperband", trials=None, epochs=3)
    # An epoch takes 10 s and a start 2 s. Of trials of 1, 1, 1, 2, 3 and 3 epochs four are done or begun.
    done = [replace(toy_trial(number, 0.5, seconds=12.0), epochs=1) for number in range(3)]
    left = time_left(plan, toy_state(*done, over=False), 1, 0.0)
    assert left == pytest.approx(12 * (2 + 3 + 3))
    goes_on = replace(toy_trial(3, 0.6, seconds=22.0), epochs=3, before=1, earlier="0")
    begun = replace(toy_trial(4, status="running", seconds=0.0, since=100.0), epochs=3)
    state = toy_state(*done, goes_on, begun, over=False)
    assert time_left(plan, state, 1, 107.0) == pytest.approx(32 + 32 - 7)
    assert "4 of 6 trials" in summary(plan, state, 1, 107.0)

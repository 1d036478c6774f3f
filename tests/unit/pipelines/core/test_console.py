import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress

from pipelines.core.console import TimeLeftColumn, counted, printable, say, shown_loss, table_console


def test_numbers_agree_with_their_nouns():
    assert [counted(number, "step") for number in (0, 1, 2000)] == ["0 steps", "1 step", "2,000 steps"]


@pytest.mark.parametrize(
    ("regression", "digits", "shown"),
    [(False, 4, "0.0123"), (False, 3, "0.012"), (True, 4, "0.01235"), (True, 2, "0.012")],
)
def test_the_loss_of_a_regression_has_significant_digits(regression, digits, shown):
    assert shown_loss(0.0123456, regression=regression, digits=digits) == shown


@pytest.fixture
def clock():
    return [100.0]


@pytest.fixture
def bar(clock):
    """A bar that shows nothing, with a clock of the test's."""
    return Progress(console=Console(file=io.StringIO()), get_time=lambda: clock[0], auto_refresh=False)


def test_the_time_left_follows_from_the_pace_after_the_first_advance(bar, clock):
    column, task = TimeLeftColumn(), bar.add_task("train", total=100, completed=40)

    def shown(seconds=0, completed=None):
        clock[0] += seconds
        bar.update(task, completed=completed)
        return column(bar.tasks[0]).plain

    # 40 were done before, and 50 s are compilation.
    assert shown() == "-:--"
    assert shown(50, completed=50) == "-:--"
    assert shown(10, completed=60) == "0:40"
    # Between two advances, the time passes.
    assert shown(3) == "0:37"
    assert shown(600) == "0:00"
    assert shown(3, completed=70) == "15:24"
    assert shown(completed=100) == "0:00"


def test_a_job_of_unknown_size_has_no_time_left(bar, clock):
    column, task = TimeLeftColumn(), bar.add_task("predict", total=None)
    for completed in range(4):
        clock[0] += 1
        bar.update(task, completed=completed)
        assert column(bar.tasks[0]).plain == "-:--"
    bar.update(task, total=5)
    assert column(bar.tasks[0]).plain == "0:02"


def test_each_bar_has_its_own_time_left(bar, clock):
    column = TimeLeftColumn()
    slow, fast = (bar.add_task(name, total=30) for name in ("slow", "fast"))
    for _ in range(3):
        shown = [column(task).plain for task in bar.tasks]
        clock[0] += 10
        bar.advance(slow, 1)
        bar.advance(fast, 10)
    assert shown == ["4:40", "0:10"]


def test_lines_are_printed_verbatim():
    file = io.StringIO()
    say(Console(file=file, width=20, force_terminal=True), "runs/[red]/:smile:  " + 50 * "long")
    assert file.getvalue() == "runs/[red]/:smile:  " + 50 * "long" + "\n"


def test_a_table_for_a_program_is_not_wrapped(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert table_console().width == 400


@given(st.binary(max_size=20))
def test_every_name_can_be_written(name):
    name = os.fsdecode(name.replace(b"\0", b""))
    printable(name).encode()
    if name.isprintable() and "\\" not in name:
        assert printable(name) == name

"""Progress of an analysis, as lines and as a bar."""

import io

import pytest
from rich.console import Console

from pipelines.analysis import progress


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def test_lines_show_the_time_left_now_and_then(clock):
    text = io.StringIO()
    with progress.AnalysisProgress(Console(file=text)).step("lesions", 60_000) as advance:
        clock[0] += 50  # compiles
        advance(1000)
        for done in range(2000, 61_000, 1000):
            clock[0] += 10
            advance(done)
    lines = text.getvalue().splitlines()
    # The speed of 10 s per thousand is known after 60 s, with 58 thousand left.
    assert lines[0] == "lesions: 2,000 of 60,000 examples, 9:40 left"
    assert lines[1] == "lesions: 4,000 of 60,000 examples, 9:20 left"
    assert lines[-1] == "lesions: 60,000 examples, 640.0 s"


def test_a_terminal_shows_a_bar():
    text = io.StringIO()
    with progress.AnalysisProgress(Console(file=text, force_terminal=True, width=100)).step("gates", 10) as advance:
        advance(10)
    assert "10 of 10" in text.getvalue()
    assert "gates" in text.getvalue()

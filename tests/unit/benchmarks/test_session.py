import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import agreement, controller, conv, roster, summary
from benchmarks.controller import Contestant, FailedError, Worker
from benchmarks.session import Benchmark, Roof, Session
from benchmarks.table import Row
from tests.unit.test_architecture import imports

PEER, SLOW, OURS = Contestant("peer", "p"), Contestant("slow peer", "p"), Contestant("ours", "o", ours=True)
BY_NAME = {one.name: one for one in (PEER, SLOW, OURS)}


@pytest.fixture
def session(tmp_path):
    return Session(tmp_path, tmp_path, quick=True, command="the command", machine="the machine")


def test_ratios_are_relative_to_the_fastest_peer(session):
    values = {"ours": [6.0, 8.0], "peer": [2.0, 4.0], "slow peer": [1.0, 1.0]}
    rows = session.rows(Row("dense", "speed", "steps/s", depth=3), values, BY_NAME)
    by_name = {row.contestant: row for row in rows}
    assert {row.best_peer for row in rows} == {"peer"}
    assert (by_name["ours"].ratio, by_name["ours"].ratio_low, by_name["ours"].ratio_high) == (2.5, 2.0, 3.0)
    assert by_name["peer"].ratio == 1.0
    assert (by_name["ours"].ours, by_name["ours"].depth, by_name["ours"].rounds) == (True, 3, 2)
    assert (by_name["ours"].command, by_name["ours"].machine) == ("the command", "the machine")


@pytest.mark.parametrize(
    ("machine", "has_it"), [("AMD EPYC, 2 cores, avx2 avx512f", False), ("AMD EPYC, 2 cores, avx2 avx512_bf16", True)]
)
def test_bfloat16_is_measured_where_the_cpu_computes_it(session, machine, has_it):
    assert replace(session, machine=machine).has_bfloat16 is has_it


def test_fewer_seconds_are_better(session):
    rows = session.rows(Row("dense", "start", "s"), {"ours": [1.0], "peer": [2.0], "slow peer": [8.0]}, BY_NAME)
    assert {row.contestant: row.ratio for row in rows} == {"ours": 2.0, "peer": 1.0, "slow peer": 0.25}


def test_without_a_peer_there_is_no_ratio(session):
    (row,) = session.rows(Row("dense", "start", "s"), {"ours": [1.0], "peer": []}, BY_NAME)
    assert row.ratio is None


def test_a_contestant_that_learns_something_else_is_noted(session, capsys):
    session.check("depth 3", agreement.EPOCH, {"a": [1.0], "b": [1.0]})
    assert session.disagreements == []
    session.check("depth 3", agreement.EPOCH, {"a": [1.0], "b": [2.0]})
    assert session.disagreements[0].startswith("depth 3: b differs from a")
    assert "within 1 of a" in capsys.readouterr().err


def test_the_time_left_follows_from_the_share_that_is_done(session, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.session.time.perf_counter", lambda: session._started + 30)
    session.expect(8)
    session.spent(2, "one of four")
    assert capsys.readouterr().err == "[ 25%, 2 min left] one of four\n"


def test_work_without_cost_gives_no_estimate(session, capsys):
    session.expect(8)
    session.spent(0, "nothing yet")
    assert capsys.readouterr().err == "[  0%, nothing done] nothing yet\n"


def test_a_missing_environment_is_skipped_by_name_with_what_to_do(session, monkeypatch, tmp_path):
    monkeypatch.setattr(controller, "PEERS", tmp_path / ".venv-peers")
    assert session.start(PEER, "{}", "depth 3") is None
    assert session.skipped == ["depth 3: peer is skipped: .venv-peers is missing: run `make peers`"]


def test_the_last_line_of_a_failed_worker_is_reported(session):
    broken = Contestant("broken", "numpy_hand", "project")
    with Worker(broken, "not json", session.folder) as worker:
        assert session.ask(worker, 1, "depth 3") is None
    (note,) = session.failed
    assert note.startswith("depth 3: broken failed: ended with status 1: json.decoder.JSONDecodeError")


def test_a_worker_that_does_not_answer_times_out(tmp_path):
    busy = Contestant("busy", "numpy_hand", "project")
    with Worker(busy, "{}", tmp_path) as worker, pytest.raises(FailedError, match="0 s"):
        worker.ask(1, patience=0)


def test_without_a_gpu_its_section_is_skipped_by_name(session, monkeypatch):
    monkeypatch.setattr(conv.shutil, "which", lambda _: None)
    assert conv.run_on_gpu(session) == []
    assert session.skipped[0].startswith("gpu: skipped, there is no NVIDIA GPU")


def test_the_time_to_an_accuracy_follows_from_the_speed_and_the_epochs():
    speed = Row(
        "modern", conv.STEADY, "images/s", "ours", True, median=100.0, low=50.0, high=200.0, ratio=1.25, of_peak=0.5
    )
    first, second = conv.projected([speed, Row("modern", "peak memory", "MiB")])
    assert (first.measure, first.unit, first.ratio, first.of_peak) == ("projected time to 92.31%", "s", 1.25, None)
    assert (first.median, first.low, first.high) == (20 * 500.0, 20 * 250.0, 20 * 1000.0)
    assert (second.measure, second.median) == ("projected time to 94%", 60 * 500.0)


def test_every_benchmark_is_listed_with_its_question(capsys):
    assert program.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [one.name for one in program.BENCHMARKS]
    assert all(line.endswith("?") for line in lines)


def _one(name, run, uses_roof=False):
    return Benchmark(name, "Is it?", run, lambda _: 1.0, uses_roof)


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "RESULTS", tmp_path)
    monkeypatch.setattr(program.frameworks, "load", lambda: None)
    return tmp_path


def test_the_roof_is_measured_before_those_that_use_it(results, monkeypatch, capsys):
    def roof(session):
        session.roof = Roof(1e9, None, 1e9, 1e9)
        return [Row("roof", "product", "GFLOP/s", median=1.0)]

    measured = []

    def run(session):
        measured.append(session.roof)
        return [Row("speed", "speed")]

    monkeypatch.setattr(program.roof, "BENCHMARK", _one("roof", roof))
    rows = (program.roof.BENCHMARK, _one("a", run, uses_roof=True), _one("b", run))
    monkeypatch.setattr(program, "BENCHMARKS", rows)
    assert program.main(["a"]) == 0
    assert program.main(["b"]) == 0
    assert measured == [Roof(1e9, None, 1e9, 1e9), None]
    assert {path.name for path in results.iterdir()} == {"roof.csv", "a.csv", "b.csv"}
    assert "speed" in capsys.readouterr().out


def test_rows_measured_before_an_interruption_are_written_and_failures_set_the_status(results, monkeypatch):
    def interrupted(_):
        yield Row("a", "speed")
        raise KeyboardInterrupt

    def failing(session):
        session.failed.append("b failed")
        return []

    monkeypatch.setattr(program, "BENCHMARKS", (_one("a", interrupted), _one("b", failing)))
    with pytest.raises(KeyboardInterrupt):
        program.main(["a"])
    assert "speed" in (results / "a.csv").read_text()
    assert program.main(["b", "--quick"]) == 1


def test_contestants_import_only_packages_of_the_peer_environment():
    # Neither pydantic nor TensorFlow, which `import keras` would import too.
    names = ("data_parallel", "divided_dropout", "initialization", "steps_per_execution")
    ours = {f"pipelines.training.{name}" for name in names}
    for module in ours:
        assert imports(module) <= {"jax", "keras", "numpy", *sys.stdlib_module_names, *ours}


def _rows(section, unit, **more):
    return [
        Row(section, "steady state", unit, one, one == "ours", median=2.0, low=1.0, high=3.0, **more) for one in BY_NAME
    ]


def test_tables_hold_every_row_with_its_ratio():
    rows = [Row("dense", "steady state", "steps/s", "ours", True, depth=1000, width=50, median=9.0, ratio=1.5,
                ratio_low=1.25, ratio_high=2.0, of_peak=0.25)]  # fmt: skip
    text = summary.text(rows)
    assert "steady state, depth 1,000, width 50, float32 (steps/s)" in text
    assert "x 1.50 [1.25 - 2.00]" in text
    assert "25.0% of peak" in text


@pytest.mark.parametrize(
    ("section", "rows"),
    [
        ("dense", _rows("dense", "steps/s", depth=30, width=50, batch=128)),
        ("wide", _rows("wide", "steps/s", depth=30, width=50, batch=128)),
        ("conv", _rows("conv", "images/s", batch=128)),
    ],
)
def test_figures_are_drawn(section, rows, tmp_path):
    summary.draw(section, rows, tmp_path)
    assert (tmp_path / f"{section}.png").read_bytes().startswith(b"\x89PNG")


def test_no_two_contestants_of_a_figure_share_a_colour():
    for contestants in (roster.DENSE, roster.CONV, roster.MODERN):
        styles = summary._styles([Row("dense", contestant=one.name, ours=one.ours) for one in contestants])
        assert len({style["color"] for style in styles.values()}) == len(contestants)


def test_a_section_without_a_figure_draws_none(tmp_path):
    summary.draw("roof", [Row("roof")], tmp_path)
    assert list(Path(tmp_path).iterdir()) == []

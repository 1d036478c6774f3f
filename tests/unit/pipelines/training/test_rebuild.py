"""Messages of a resumed run about its devices."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from pipelines.core.errors import UserError
from pipelines.training import rebuild


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ((1, 1), (3, 3), "among 1 device and is now on 3 of 3 processes: results"),
        ((2, 2), (1, 1), "among 2 devices of 2 processes and is now on 1: results"),
        ((2, 2), (2, 2), ""),
    ],
)
def test_other_devices_are_counted(monkeypatch, before, now, said):
    monkeypatch.setattr(rebuild.devices, "used", lambda _: now[0])
    monkeypatch.setattr(rebuild.devices, "processes", lambda: now[1])
    console = Console(file=io.StringIO(), width=200)
    record = SimpleNamespace(devices=before[0], starts=[SimpleNamespace(processes=before[1])])
    options = SimpleNamespace(console=console, devices=None, exchange=None)
    rebuild.say_other_devices(SimpleNamespace(record=record), None, options)
    assert said in console.file.getvalue()
    assert bool(console.file.getvalue()) == bool(said)


@pytest.mark.parametrize(("before", "now"), [("tensorflow-cpu", "tensorflow"), ("tensorflow", "tensorflow-cpu")])
def test_a_run_moves_between_machines_with_and_without_cuda(monkeypatch, before, now):
    record = SimpleNamespace(backend="tensorflow", versions={before: "2.21.0"})
    run = SimpleNamespace(record=record, path="runs/demo")
    monkeypatch.setattr(rebuild.environment, "versions", lambda: {now: "2.21.0"})
    rebuild.refuse_other_versions(run)
    monkeypatch.setattr(rebuild.environment, "versions", lambda: {now: "2.20.0"})
    with pytest.raises(UserError, match=f"was started with {before} 2.21.0, and this is 2.20.0.*Install {now}==2"):
        rebuild.refuse_other_versions(run)
    monkeypatch.setattr(rebuild.environment, "versions", dict)
    with pytest.raises(UserError, match=f"and this is without it.*Install {before}==2.21.0"):
        rebuild.refuse_other_versions(run)


def test_a_finished_run_is_refused_with_a_command_that_can_be_pasted():
    record = SimpleNamespace(state="finished")
    run = SimpleNamespace(record=record, path=Path("my runs/demo"), config=SimpleNamespace(epochs=3))
    with pytest.raises(UserError, match=r"is finished: all 3 epochs.*`highway evaluate 'my runs/demo'`"):
        rebuild.refuse_resuming(run)

"""Comparisons before a process resumes a run, or trains it along with others."""

import dataclasses
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from pipelines.core import environment
from pipelines.core.errors import UserError
from pipelines.core.frozen import flat
from pipelines.core.optimizers import Adam
from pipelines.core.run import DataRecord
from pipelines.training import launch, rebuild
from tests.toy_data import RECORD, ToyData, toy_config

DATA = DataRecord(**dataclasses.asdict(ToyData().describe("toy")))


class AgreedError(Exception):
    """Raised in place of the state that a process asks for once it has compared everything."""


def changed(config, name, value):
    """Returns a copy of a configuration with another value of a field, given by its dotted name."""
    group, _, field = name.rpartition(".")
    if group:
        field, value = group, getattr(config, group).model_copy(update={field: value})
    return config.model_copy(update={field: value})


@pytest.fixture
def follow(monkeypatch, tmp_path):
    """A function that follows a process with a configuration and a record; what it reads are the toy data."""
    ToyData().install(monkeypatch)

    def run(here, led, record):
        def messages():
            yield json.dumps({"config": led.model_dump(mode="json"), "record": record.model_dump(mode="json")}).encode()
            raise AgreedError

        exchange = SimpleNamespace(share=messages().__next__)
        options = launch.Options(None, Console(file=io.StringIO()), exchange=exchange)
        try:
            launch.follow(here, tmp_path / "run", options)
        finally:
            assert list(tmp_path.iterdir()) == []

    return run


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


def test_a_process_whose_configuration_differs_in_any_field_is_refused():
    led = toy_config()
    rebuild.refuse_other_configuration(toy_config(), led)
    for name, value in flat(led).items():
        with pytest.raises(UserError) as refused:
            rebuild.refuse_other_configuration(changed(led, name, "another"), led)
        assert str(refused.value) == (
            f"this process was started with {name} another, and the one that leads the run with {value}. Start all "
            "processes with the same command."
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 1, "epochs": 3}, "with epochs 3, and the one that leads the run with 2. "),
        # These optimizers have different fields.
        ({"optimizer": Adam()}, "with optimizer.name adam, and the one that leads the run with sgd. "),
    ],
)
def test_the_first_difference_between_configurations_is_named(changes, said):
    with pytest.raises(UserError, match=said):
        rebuild.refuse_other_configuration(toy_config(**changes), toy_config())


@pytest.mark.parametrize("package", ["python", *environment.PACKAGES])
def test_other_versions_of_packages_that_affect_the_steps_are_refused(monkeypatch, package):
    versions = dict.fromkeys(("python", *environment.PACKAGES), "1.0")
    run = SimpleNamespace(record=SimpleNamespace(backend="jax", versions=versions), path="runs/demo")
    monkeypatch.setattr(rebuild.environment, "versions", lambda: {**versions, package: "2.0"})
    if package in ("python", "numpy", "tensorflow-datasets"):
        rebuild.refuse_other_versions(run)
    else:
        with pytest.raises(UserError, match=f"runs/demo was started with {package} 1.0, and this is 2.0: "):
            rebuild.refuse_other_versions(run)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "toy/other"},
        {"version": "2.0.0"},
        {"shape": (9, 9, 1)},
        {"labels": DATA.labels[::-1]},
        {"counts": {**DATA.counts, "train": 199}},
        {"target": "class"},
        {"multi_label": True},
    ],
)
def test_a_process_with_other_data_than_the_one_that_leads_is_refused(follow, changes):
    led = DATA.model_copy(update=changes)
    with pytest.raises(UserError) as refused:
        follow(toy_config(), toy_config(), RECORD.model_copy(update={"data": led}))
    before, _, found = str(refused.value).partition(", but the data found is toy 1.0.0 with {")
    assert before.endswith(f"was trained on {led.name} {led.version} with {led.counts}")
    (name,) = changes
    assert (f"}} and another {name}. Point --data-dir" in found) is (name not in {"name", "version", "counts"})


def test_a_process_compares_configuration_versions_and_data_before_it_asks_for_the_state(follow):
    same = RECORD.model_copy(update={"data": DATA, "versions": environment.versions()})
    with pytest.raises(AgreedError):
        follow(toy_config(), toy_config(), same)
    # One that resumes has no configuration of its own.
    with pytest.raises(AgreedError):
        follow(None, toy_config(epochs=3), same)

    other_data = same.model_copy(update={"data": DATA.model_copy(update={"version": "2.0.0"})})
    both = other_data.model_copy(update={"versions": {"keras": "1.0"}})
    with pytest.raises(UserError, match="with epochs 2, and the one that leads the run with 3"):
        follow(toy_config(), toy_config(epochs=3), both)
    with pytest.raises(UserError, match=r"was started with keras 1\.0, and this is "):
        follow(toy_config(), toy_config(), both)
    with pytest.raises(UserError, match=r"was trained on toy 2\.0\.0 with "):
        follow(toy_config(), toy_config(), other_data)

"""Comparisons before a process resumes a run, or trains it along with others."""

import dataclasses
import io
import json
from pathlib import Path
from types import SimpleNamespace

import keras
import pytest
from rich.console import Console

from pipelines.core import environment
from pipelines.core import run as runs
from pipelines.core.errors import UserError
from pipelines.core.frozen import flat
from pipelines.core.optimizers import Adam
from pipelines.core.run import DataRecord
from pipelines.training import launch, rebuild
from tests.toy_data import RECORD, ToyData, toy_config

DATA = DataRecord(**dataclasses.asdict(ToyData().describe("toy")))


def resumed_run(versions, *, backend="jax", **fields):
    """A run that was started with some versions."""
    record = SimpleNamespace(backend=backend, versions=versions)
    return SimpleNamespace(config=toy_config(**fields), record=record, path="runs/demo")


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
    run = resumed_run({before: "2.21.0"}, backend="tensorflow")
    monkeypatch.setattr(rebuild.environment, "versions", lambda: {now: "2.21.0"})
    rebuild.refuse_other_versions(run)
    monkeypatch.setattr(rebuild.environment, "versions", lambda: {now: "2.20.0"})
    with pytest.raises(UserError, match=f"was started with {before} 2.21.0, and this is 2.20.0.*Install {now}==2"):
        rebuild.refuse_other_versions(run)
    monkeypatch.setattr(rebuild.environment, "versions", dict)
    with pytest.raises(UserError, match=f"and this is without it.*Install {before}==2.21.0"):
        rebuild.refuse_other_versions(run)


def test_a_finished_run_is_refused_with_a_command_that_can_be_pasted():
    record = SimpleNamespace(state="finished", pruned=None)
    run = SimpleNamespace(record=record, path=Path("my runs/demo"), config=SimpleNamespace(epochs=3))
    with pytest.raises(UserError, match=r"is finished: all 3 epochs.*`highway evaluate 'my runs/demo'`"):
        rebuild.refuse_resuming(run)


@pytest.mark.parametrize("state", ["running", "finished", "diverged"])
def test_a_pruned_run_is_refused_in_every_state(state):
    # Its configuration is that of the whole net: earlier versions copied the state of an unfinished run.
    run = SimpleNamespace(record=SimpleNamespace(state=state, pruned=object()), path=Path("my runs/small"))
    with pytest.raises(UserError, match=r"has the pruned net of another run.*`highway evaluate 'my runs/small'`"):
        rebuild.refuse_resuming(run)


def led_run(**fields):
    """A run as a process that follows has it."""
    record = SimpleNamespace(backend="jax", versions=fields.pop("versions", environment.versions()))
    return SimpleNamespace(config=toy_config(**fields), record=record, path="runs/demo", writes=False)


def test_a_process_whose_configuration_differs_in_any_field_is_refused():
    run = led_run()
    rebuild.refuse_unequal_process(toy_config(), run)
    for name, value in flat(run.config).items():
        with pytest.raises(UserError) as refused:
            rebuild.refuse_unequal_process(changed(run.config, name, "another"), run)
        assert str(refused.value) == (
            f"this process was started with {name} another, and process 0 with {value}. Start all processes with the "
            "same command."
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 1, "epochs": 3}, "with epochs 3, and process 0 with 2. "),
        # These optimizers have different fields.
        ({"optimizer": Adam()}, "with optimizer.name adam, and process 0 with sgd. "),
    ],
)
def test_the_first_difference_between_configurations_is_named(changes, said):
    with pytest.raises(UserError, match=said):
        rebuild.refuse_unequal_process(toy_config(**changes), led_run())


@pytest.mark.parametrize("package", ["python", *environment.PACKAGES])
def test_other_versions_of_packages_that_affect_the_steps_are_refused(monkeypatch, package):
    versions = dict.fromkeys(("python", *environment.PACKAGES), "1.0")
    run = resumed_run(versions, data="s3://bucket/photos#0123456789abcdef")
    monkeypatch.setattr(rebuild.environment, "versions", lambda: {**versions, package: "2.0"})
    if package == "python":
        rebuild.refuse_other_versions(run)
    else:
        with pytest.raises(UserError, match=f"runs/demo was started with {package} 1.0, and this is 2.0: "):
            rebuild.refuse_other_versions(run)


@pytest.mark.parametrize(("backend", "package"), [("tensorflow", "jax"), ("jax", "pillow")])
def test_other_versions_of_packages_that_the_run_does_not_use_are_accepted(monkeypatch, backend, package):
    monkeypatch.setattr(rebuild.environment, "versions", lambda: {"keras": "1.0", package: "2.0"})
    rebuild.refuse_other_versions(resumed_run({"keras": "1.0", package: "1.0"}, backend=backend))


def test_a_run_of_a_version_that_recorded_fewer_packages_is_accepted(monkeypatch):
    monkeypatch.setattr(rebuild.environment, "versions", lambda: {"keras": "1.0", "pillow": "2.0"})
    rebuild.refuse_other_versions(resumed_run({"keras": "1.0"}, data="s3://bucket/photos#0123456789abcdef"))


@pytest.mark.parametrize("package", environment.PACKAGES)
def test_processes_that_train_together_need_the_same_version_of_each_package(monkeypatch, package):
    here = dict.fromkeys(("python", *environment.PACKAGES), "1.0")
    del here["tensorflow-cpu"]
    monkeypatch.setattr(rebuild.environment, "versions", lambda: here)
    installed = "tensorflow" if package == "tensorflow-cpu" else package
    with pytest.raises(UserError) as refused:
        rebuild.refuse_unequal_process(None, led_run(versions={**here, package: "2.0"}))
    assert str(refused.value) == (
        f"this process has {package} 1.0, and process 0 has 2.0: they would compute different numbers. Install "
        f"{installed}==2.0 here, or the same version for all processes."
    )
    del here[installed]
    with pytest.raises(UserError, match=f"this process has no {package}, and process 0 has 2.0: "):
        rebuild.refuse_unequal_process(None, led_run(versions={**here, package: "2.0"}))


def test_processes_that_train_together_may_differ_in_python_and_in_the_build_of_tensorflow(monkeypatch):
    monkeypatch.setattr(rebuild.environment, "versions", lambda: {"python": "3.12.0", "tensorflow": "2.21.0"})
    rebuild.refuse_unequal_process(None, led_run(versions={"python": "3.11.0", "tensorflow-cpu": "2.21.0"}))


@pytest.mark.parametrize("resumes", [False, True])
def test_process_0_passes_on_its_present_versions(monkeypatch, tmp_path, resumes):
    # It may have resumed a run of another version of Python.
    ToyData().install(monkeypatch)
    sent, path, now = [], tmp_path / "run", environment.versions()
    monkeypatch.setattr(launch, "_starts", lambda *_: ())

    def share(message):
        sent.append(json.loads(message))
        raise AgreedError

    options = launch.Options(None, Console(file=io.StringIO()), exchange=SimpleNamespace(share=share))
    if resumes:
        before = {"data": DATA, "versions": {**now, "python": "1.0"}, "backend": keras.backend.backend()}
        runs.create(path, toy_config(), RECORD.model_copy(update=before))
    with pytest.raises(AgreedError):
        launch.resume(path, options) if resumes else launch.start(toy_config(), path, options)
    assert [led["record"]["versions"] for led in sent] == [now]
    if resumes:
        assert runs.open_run(path).record.versions["python"] == "1.0"


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
    before, _, found = str(refused.value).partition(", but this process finds toy 1.0.0 with {")
    assert before == f"process 0 trains on {led.name} {led.version} with {led.counts}"
    (name,) = changes
    another = "" if name in {"name", "version", "counts"} else f" and another {name}"
    assert found.endswith(f"}}{another}. Point its --data-dir at the former.")


def test_a_process_compares_configuration_versions_and_data_before_it_asks_for_the_state(follow):
    same = RECORD.model_copy(update={"data": DATA, "versions": environment.versions()})
    with pytest.raises(AgreedError):
        follow(toy_config(), toy_config(), same)
    # One that resumes has no configuration of its own.
    with pytest.raises(AgreedError):
        follow(None, toy_config(epochs=3), same)

    other_data = same.model_copy(update={"data": DATA.model_copy(update={"version": "2.0.0"})})
    both = other_data.model_copy(update={"versions": {"keras": "1.0"}})
    with pytest.raises(UserError, match="with epochs 2, and process 0 with 3"):
        follow(toy_config(), toy_config(epochs=3), both)
    with pytest.raises(UserError, match=r"this process has keras .*, and process 0 has 1\.0: "):
        follow(toy_config(), toy_config(), both)
    with pytest.raises(UserError, match=r"process 0 trains on toy 2\.0\.0 with "):
        follow(toy_config(), toy_config(), other_data)


def test_a_record_that_cannot_be_read_is_of_another_version(tmp_path):
    exchange = SimpleNamespace(share=lambda: b'{"config": {}, "record": {}, "other": 1}')
    options = launch.Options(None, Console(file=io.StringIO()), exchange=exchange)
    with pytest.raises(UserError, match=r"cannot read, so it has another version of highway-keras\. Install the same"):
        launch.follow(None, tmp_path / "run", options)

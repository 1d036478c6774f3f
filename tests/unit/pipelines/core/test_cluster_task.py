"""A task of a cluster in its process: its end by a signal, and what it gets from the driver."""

import os
import pickle
import signal
from pathlib import Path

import pytest

from pipelines.core import cluster_executor, cluster_worker, environment
from pipelines.core.errors import StoppedError


@pytest.fixture(autouse=True)
def _command(monkeypatch):
    """Restores the variable in which a task finds the command of its driver."""
    monkeypatch.setenv(environment.COMMAND, "highway tune demo")


def stopped(why):
    raise StoppedError(why, signal.SIGTERM)


def test_a_signal_ends_the_process_of_a_task():
    setting = cluster_executor._setting(1)
    with pytest.raises(SystemExit) as raised:
        cluster_worker.perform(setting, "a", pickle.dumps(("it was stopped", stopped)))
    assert raised.value.code == 143


@pytest.mark.parametrize(
    "name", ["KERAS_BACKEND", "TF_DETERMINISTIC_OPS", "TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS", "GRPC_VERBOSITY"]
)
def test_tasks_get_settings_and_folder_of_the_driver(monkeypatch, tmp_path, name):
    monkeypatch.setenv(name, "some")
    monkeypatch.chdir(tmp_path)
    setting = cluster_executor._setting(1)
    monkeypatch.setenv(name, "other")
    monkeypatch.delenv(environment.COMMAND)
    monkeypatch.chdir("/")
    outcome = cluster_worker.perform(setting, "a", pickle.dumps((name, os.getenv)))
    assert outcome.result == "some"
    assert environment.command() == "highway tune demo"
    assert Path.cwd() == tmp_path


@pytest.mark.parametrize(("given", "expected"), [("data", "{folder}/data"), ("~/data", "{home}/data"), ("", "its own")])
def test_tasks_get_the_default_folder_of_data_of_the_driver(monkeypatch, tmp_path, given, expected):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(cluster_executor.DATA_DIR, given)
    setting = cluster_executor._setting(1)
    monkeypatch.setenv(cluster_executor.DATA_DIR, "its own")
    outcome = cluster_worker.perform(setting, "a", pickle.dumps((cluster_executor.DATA_DIR, os.getenv)))
    assert outcome.result == expected.format(folder=tmp_path, home=Path.home())

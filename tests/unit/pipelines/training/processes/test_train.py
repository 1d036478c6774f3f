import signal

import pytest

from pipelines.core.errors import UserError
from pipelines.training.callbacks import ResetWatchdog
from pipelines.training.processes import train
from tests.toy_data import toy_config


@pytest.fixture
def task(tmp_path):
    return train.TrainTask(folder=tmp_path / "run", data_dir=None, config=toy_config())


def test_an_alarm_waits_while_a_run_is_trained_but_not_while_its_data_are_prepared(task, monkeypatch):
    def trained(_config, path, *, reset_watchdog, **_):
        assert path == task.folder
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
        ResetWatchdog(reset_watchdog).on_train_begin()
        before = signal.getitimer(signal.ITIMER_REAL)[0]
        assert before > 0
        reset_watchdog()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > before

    monkeypatch.setattr(train, "train", trained)
    train.act(task)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_user_error_is_reported(task, monkeypatch):
    def mistaken(*_, **__):
        raise UserError("no such data")

    monkeypatch.setattr(train, "train", mistaken)
    with pytest.raises(UserError, match="no such data"):
        train.act(task)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0

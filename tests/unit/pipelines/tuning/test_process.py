import signal

from pipelines.tuning import process
from tests.toy_data import toy_config


def test_an_alarm_waits_while_a_winner_is_trained_again(tmp_path, monkeypatch):
    def trained(_given, _console, alive):
        before = signal.getitimer(signal.ITIMER_REAL)[0]
        assert before > 0
        alive()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > before

    monkeypatch.setattr(process, "train", trained)
    monkeypatch.setattr(process, "_training", lambda _: toy_config())
    process._act(process.Task(role="retrain", folder=tmp_path / "run", data_dir=None))
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from pipelines.tuning import hparams

from .plans import study_plan, toy_plan, toy_state, toy_trial
from .searches import hyperband_state


def content(board, tag):
    events = EventAccumulator(str(board)).Reload()
    return events.PluginTagToContent(metadata.PLUGIN_NAME)[tag]


def values(board):
    start = metadata.parse_session_start_info_plugin_data(content(board, metadata.SESSION_START_INFO_TAG))
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}


def names(board):
    return [
        info.name
        for info in metadata.parse_experiment_plugin_data(content(board, metadata.EXPERIMENT_TAG)).hparam_infos
    ]


def test_a_setting_is_one_session_that_tells_its_epochs(tmp_path):
    hparams.write(tmp_path, toy_plan("hyperband", None, epochs=3), hyperband_state(9))
    board = tmp_path / "tensorboard"
    assert {path.name for path in board.iterdir() if path.is_dir()} == {"1", "2", "4", "5", "7", "8", "9", "10", "11"}
    assert names(board) == ["learning_rate", "activation", "transform_bias", "epochs"]
    assert values(board / "1")["epochs"] == 1
    assert values(board / "9")["epochs"] == 3


@pytest.mark.parametrize(("net", "biased"), [("plain-10", False), ("highway-10", True)])
def test_a_net_without_gates_has_no_bias_of_theirs(tmp_path, net, biased):
    trial = toy_trial(0, 0.5, net=net, momentum=0.5, decay=0.9)
    hparams.write(tmp_path, study_plan(), toy_state(trial))
    shown = values(tmp_path / "tensorboard" / "0")
    assert shown["net"] == net
    assert ("transform_bias" in shown) == biased
    assert "epochs" not in shown

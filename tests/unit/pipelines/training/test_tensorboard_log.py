import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from pipelines.training.tensorboard_log import GATES, TensorBoardLog

ROWS = [
    {"epoch": epoch, "step": 10.0 * epoch, "seconds": 1.5, "loss": 1 / epoch, "val_loss": 2 / epoch, "gate/a": 0.25}
    for epoch in (1, 2, 3)
]


def read(folder):
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    return {
        name: [(event.step, make_ndarray(event.tensor_proto).item()) for event in events.Tensors(name)]
        for name in events.Tags()["tensors"]
    }


def test_the_names_that_keras_gives(tmp_path):
    with TensorBoardLog(tmp_path, ROWS[:1]) as log:
        log.add(ROWS[1])
        # Before it is closed: nothing of a finished epoch is lost when the process is killed.
        found = read(tmp_path / "train")
    assert found == {"epoch_loss": [(0, 1.0), (1, 0.5)], "epoch_gate/a": [(0, 0.25), (1, 0.25)]}
    assert read(tmp_path / "validation") == {"epoch_loss": [(0, 2.0), (1, 1.0)]}


def test_an_earlier_log_is_replaced_and_no_epoch_appears_twice(tmp_path):
    with TensorBoardLog(tmp_path, ROWS):
        pass
    with next((tmp_path / "train").iterdir()).open("ab") as file:
        file.write(b"cut")
    with TensorBoardLog(tmp_path, ROWS[:1]) as log:
        log.add(ROWS[1])
    assert [step for step, _ in read(tmp_path / "train")["epoch_loss"]] == [0, 1]


def test_steps_within_epochs_have_curves_of_their_own(tmp_path):
    with TensorBoardLog(tmp_path, ROWS[:1], [{"step": 5.0, "loss": 2.0}]) as log:
        log.add_step({"step": 15.0, "loss": 0.75})
    assert read(tmp_path / "train")["batch_loss"] == [(5, 2.0), (15, 0.75)]


@pytest.mark.parametrize(("gates", "drawn"), [(GATES, GATES), (GATES + 1, 0)])
def test_too_many_gates_to_tell_apart_are_not_logged(tmp_path, gates, drawn):
    row = {"epoch": 1, "loss": 1.0, **{f"gate/{index}": 0.5 for index in range(gates)}}
    with TensorBoardLog(tmp_path, [row]):
        pass
    assert len(read(tmp_path / "train")) == 1 + drawn

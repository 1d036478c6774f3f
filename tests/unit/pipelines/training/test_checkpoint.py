import math

import keras
import numpy as np
import pytest

from pipelines.core.errors import UserError
from pipelines.core.optimizers import SGD
from pipelines.training import checkpoint, checkpoint_file, optimizers
from pipelines.training.checkpoint import SHARE, Progress, SaveTimer, TrainingState
from tests.toy_data import toy_config

RUN = {"configuration": {"recipe": "a", "seed": 0}}
X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")


def model(units=3, loss_scaling=False):
    made = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(units), keras.layers.BatchNormalization()]
    )
    optimizer = optimizers.build(SGD(ema=0.9, bias_multiplier=2.0), 0.1)
    made.compile(keras.optimizers.LossScaleOptimizer(optimizer) if loss_scaling else optimizer, "mse")
    return made


def train(made, steps):
    units = made.output_shape[1]
    return [float(made.train_on_batch(X, np.ones((8, units)))) for _ in range(steps)]


def test_the_progress_of_an_earlier_version_keeps_its_best_epoch():
    progress = Progress(step=3, seconds=1.5, best=0.75, best_epoch=2)
    assert progress.improved_epoch == 2
    assert progress.best_loss == -math.inf


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("loss_scaling", [False, True])
def test_everything_that_decides_the_next_step_is_restored(tmp_path, loss_scaling, built):
    before, after = model(loss_scaling=loss_scaling), model(loss_scaling=loss_scaling)
    if built:
        after.optimizer.build(after.trainable_variables)
    train(before, 5)
    checkpoint.save(tmp_path, before, Progress(3, 1.5, 0.75, 2, 0.5, 1), RUN)
    state = checkpoint.load(tmp_path, after, RUN)
    assert state.progress == Progress(3, 1.5, 0.75, 2, 0.5, 1)
    assert state.damaged == ()
    assert [value.tolist() for value in state.metrics] == [value.numpy().tolist() for value in before.metrics_variables]
    # Momentum, the means and the dropout seed all affect the following steps.
    assert train(after, 5) == train(before, 5)
    for one, other in zip(after.optimizer.variables, before.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_without_a_save_nothing_is_loaded(tmp_path):
    assert checkpoint.load(tmp_path / "checkpoint", model(), RUN) is None


def saved(folder, *steps):
    """A model, saved after each of some steps."""
    made = model()
    made.optimizer.build(made.trainable_variables)
    for step in steps:
        checkpoint.save(folder, made, Progress(step), RUN)
    return made


def test_the_previous_checkpoint_is_kept(tmp_path):
    saved(tmp_path, 1, 2, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["previous.npz", "state.npz"]
    (tmp_path / "state.npz").unlink()
    assert checkpoint.load(tmp_path, model(), RUN).progress.step == 2


@pytest.mark.parametrize("keep", [0, 10, 300, -30])
def test_a_truncated_file_falls_back_to_the_previous_one_and_is_named(tmp_path, keep):
    saved(tmp_path, 1, 2)
    path = tmp_path / "state.npz"
    path.write_bytes(path.read_bytes()[:keep])
    state = checkpoint.load(tmp_path, model(), RUN)
    assert state.progress.step == 1
    assert [damage.partition(" (")[0] for damage in state.damaged] == [f"{path} is damaged"]
    # The damaged file is out of the way, so that the next save does not replace an intact one with it.
    assert checkpoint.load(tmp_path, model(), RUN).progress.step == 1
    assert not (tmp_path / "previous.npz").exists()


def test_two_truncated_files_are_an_error_and_stay(tmp_path):
    saved(tmp_path, 1, 2)
    for name in ("state.npz", "previous.npz"):
        (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(UserError, match=r"state\.npz is damaged .*previous\.npz is damaged .*--run DIR"):
        checkpoint.load(tmp_path, model(), RUN)
    assert (tmp_path / "previous.npz").exists()


def test_no_changed_byte_goes_unnoticed(tmp_path):
    made = saved(tmp_path, 1, 2)
    train(made, 2)
    checkpoint.save(tmp_path, made, Progress(3), RUN)
    path = tmp_path / "state.npz"
    content = path.read_bytes()
    expected = [variable.numpy() for variable in [*made.variables, *made.optimizer.variables]]
    seen = 0
    for where in np.random.default_rng(0).integers(0, len(content), 40):
        path.write_bytes(content[:where] + bytes([content[where] ^ 0x10]) + content[where + 1 :])
        (tmp_path / "previous.npz").write_bytes(content)
        after = model()
        seen += bool(checkpoint.load(tmp_path, after, RUN).damaged)
        # The change was detected, or it is in something that is not read, such as the date of an entry.
        for variable, value in zip([*after.variables, *after.optimizer.variables], expected, strict=True):
            np.testing.assert_array_equal(variable.numpy(), value)
    assert seen > 12


def test_a_process_that_builds_another_net_than_process_0_is_refused():
    state = checkpoint.to_bytes(model(units=5), TrainingState())
    with pytest.raises(
        UserError, match=r"^process 0 trains another net: its state has .* Start all processes with the"
    ):
        checkpoint.from_bytes(state, model(units=3))


def test_the_state_of_another_net_is_refused_and_nothing_changed(tmp_path):
    checkpoint.save(tmp_path, model(units=5), Progress(), RUN)
    made = model(units=3)
    before = made.get_weights()
    with pytest.raises(UserError, match=r"state\.npz is of another net: its state has .* Resume with the code that"):
        checkpoint.load(tmp_path, made, RUN)
    for weight, expected in zip(made.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)


@pytest.mark.parametrize("steps", [1, 0])
def test_the_state_of_a_version_with_other_metrics_is_refused_and_nothing_changed(tmp_path, steps):
    before, after = model(), model()
    before.optimizer.build(before.trainable_variables)
    train(before, steps)
    checkpoint.save(tmp_path, before, Progress(steps), RUN)
    after.compile(after.optimizer, "mse", metrics=["mae"])
    weights = after.get_weights()
    with pytest.raises(
        UserError, match=r"other metrics: it has 2 running values, and this version 4\. Resume with the"
    ):
        checkpoint.load(tmp_path, after, RUN)
    for weight, expected in zip(after.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, expected)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"configuration": {"recipe": "b", "seed": 1}}, r"is of recipe b, and this run of a\."),
        ({"configuration": {"recipe": "a", "seed": 1}}, r"another run of a: its configuration\.seed is 1, .* is 0\."),
        ({"precision": "float32"}, r"another run of a: its precision is float32, and this run's is None\."),
    ],
)
def test_the_state_of_another_run_is_refused_by_name(tmp_path, other, message):
    checkpoint.save(tmp_path, model(), Progress(), {**RUN, **other})
    with pytest.raises(UserError, match=message):
        checkpoint.load(tmp_path, model(), RUN)


def test_another_format_is_refused_by_name(tmp_path, monkeypatch):
    np.savez(tmp_path / "state.npz", progress=np.array("{}"))
    with pytest.raises(UserError, match=r"has format 1, and this version .* reads 2"):
        checkpoint.load(tmp_path, model(), RUN)
    monkeypatch.setattr(checkpoint_file, "FORMAT", 3)
    saved(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"has format 3, and this version .* reads 2"):
        checkpoint.load(tmp_path, model(), RUN)


def test_a_checkpoint_older_than_a_field_is_resumed(tmp_path):
    now = toy_config().model_dump(mode="json")
    before = {name: value for name, value in now.items() if name != "subset"}
    before["preprocess"] = {name: value for name, value in now["preprocess"].items() if name != "offset"}
    made = model()
    made.optimizer.build(made.trainable_variables)
    checkpoint.save(tmp_path, made, Progress(4), {"configuration": before})
    assert checkpoint.load(tmp_path, made, {"configuration": now}).progress.step == 4
    now["subset"] = {"train": 10, "test": None}
    with pytest.raises(UserError, match=r"its configuration\.subset\.train is None, and this run's is 10"):
        checkpoint.load(tmp_path, made, {"configuration": now})


class Clock:
    """A clock that the test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def trained(seconds_a_step, seconds_a_save, steps):
    """Returns the steps that were saved, and the total time."""
    clock = Clock()
    timer, kept = SaveTimer("auto", 0, clock), []
    for step in range(1, steps + 1):
        clock.now += seconds_a_step
        if timer.due(step):
            clock.now += seconds_a_save
            timer.saved(step, seconds_a_save)
            kept.append(step)
    return kept, clock.now - 100


@pytest.mark.parametrize("save", [0.001, 0.02, 1.0])
@pytest.mark.parametrize("step", [0.001, 0.1])
def test_all_saves_but_the_first_cost_their_share(step, save):
    kept, seconds = trained(step, save, steps=20_000)
    assert kept[0] == 1
    assert (len(kept) - 1) * save <= SHARE * seconds
    # They use their share fully.
    assert len(kept) == 20_000 or (len(kept) + 1) * save > SHARE * (seconds - step)


def test_a_slow_save_delays_the_next_ones():
    clock = Clock()
    timer = SaveTimer("auto", 0, clock)
    timer.saved(1, 0.1)
    clock.now += 0.3 / SHARE
    assert timer.due(2)
    timer.saved(2, 2.0)
    clock.now += 3 / SHARE
    assert not timer.due(3)
    clock.now += 1 / SHARE
    assert timer.due(4)


@pytest.mark.parametrize(
    ("interval", "start", "execution", "kept"),
    [
        (1, 0, 1, [1, 2, 3, 4, 5, 6]),
        (3, 0, 1, [3, 6]),
        (3, 0, 2, [4, 6]),
        (4, 2, 2, [4, 8]),
        (100, 0, 1, []),
    ],
)
def test_a_numeric_interval_counts_steps(interval, start, execution, kept):
    timer, found = SaveTimer(interval, start), []
    for step in range(start + execution, start + 6 * execution + 1, execution):
        if step > max([6, *kept]):
            break
        if timer.due(step):
            timer.saved(step, 0.0)
            found.append(step)
    assert found == kept

import keras
import numpy as np
import pytest

from pipelines.config import Optimizer
from pipelines.errors import UserError
from pipelines.training import checkpoint, optimizers
from pipelines.training.checkpoint import Progress

X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")


def model(units=3, loss_scaling=False):
    made = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(units), keras.layers.BatchNormalization()]
    )
    optimizer = optimizers.build(Optimizer(ema=0.9, bias_multiplier=2.0), 0.1)
    made.compile(keras.optimizers.LossScaleOptimizer(optimizer) if loss_scaling else optimizer, "mse")
    return made


def train(made, steps):
    units = made.output_shape[1]
    return [float(made.train_on_batch(X, np.ones((8, units)))) for _ in range(steps)]


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("loss_scaling", [False, True])
def test_everything_that_decides_the_next_step_comes_back(tmp_path, loss_scaling, built):
    before, after = model(loss_scaling=loss_scaling), model(loss_scaling=loss_scaling)
    if built:
        after.optimizer.build(after.trainable_variables)
    train(before, 5)
    checkpoint.save(tmp_path / "state.npz", before, Progress(3, 1.5, 0.75, 2))
    assert checkpoint.load(tmp_path / "state.npz", after) == Progress(3, 1.5, 0.75, 2)
    # Momentum, the means and the dropout's seed all show in the steps that follow.
    assert train(after, 5) == train(before, 5)
    for one, other in zip(after.optimizer.variables, before.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("keep", [0, 10, 300, -30])
def test_a_truncated_file_is_named(tmp_path, keep):
    path = tmp_path / "state.npz"
    checkpoint.save(path, model(), Progress())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"state\.npz is damaged"):
        checkpoint.load(path, model())


def test_a_changed_byte_is_found(tmp_path):
    path = tmp_path / "state.npz"
    made = model()
    train(made, 1)
    checkpoint.save(path, made, Progress())
    content = bytearray(path.read_bytes())
    where = content.find(made.optimizer.variables[-1].numpy().tobytes())
    content[where + 1] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"state\.npz is damaged"):
        checkpoint.load(path, model())


def test_the_state_of_another_net_is_refused_and_nothing_changed(tmp_path):
    checkpoint.save(tmp_path / "state.npz", model(units=5), Progress())
    made = model(units=3)
    before = made.get_weights()
    with pytest.raises(UserError, match="belongs to another net"):
        checkpoint.load(tmp_path / "state.npz", made)
    for weight, expected in zip(made.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)

import keras
import numpy as np
import pytest

from pipelines.core.config import Optimizer
from pipelines.core.errors import UserError
from pipelines.training import optimizers

RATE, MOMENTUM = 0.1, 0.9
GENERATOR = np.random.default_rng(0)
START = {"kernel": GENERATOR.normal(size=(3, 2)), "transform_bias": GENERATOR.normal(size=2)}
GRADIENTS = [{name: GENERATOR.normal(size=value.shape) for name, value in START.items()} for _ in range(5)]


def caffe(nesterov, multiplier):
    """Caffe's SGD (sgd_solver.cpp, nesterov_solver.cpp) in float64."""
    weights = {name: value.copy() for name, value in START.items()}
    history = {name: np.zeros_like(value) for name, value in START.items()}
    for gradients in GRADIENTS:
        for name, gradient in gradients.items():
            local_rate = RATE * (multiplier if "bias" in name else 1)
            before = history[name]
            history[name] = MOMENTUM * before + local_rate * gradient
            update = (1 + MOMENTUM) * history[name] - MOMENTUM * before if nesterov else history[name]
            weights[name] -= update
    return weights


def ours(optimizer, scale=1.0):
    variables = {name: keras.Variable(value, name=name, dtype="float32") for name, value in START.items()}
    for gradients in GRADIENTS:
        scaled = [keras.ops.cast(gradients[name] * scale, "float32") for name in variables]
        optimizer.apply(scaled, list(variables.values()))
    return {name: variable.numpy() for name, variable in variables.items()}


@pytest.mark.parametrize("multiplier", [1.0, 2.0])
@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_caffes(nesterov, multiplier):
    settings = Optimizer(momentum=MOMENTUM, nesterov=nesterov, bias_multiplier=multiplier)
    result = ours(optimizers.build(settings, RATE))
    for name, expected in caffe(nesterov, multiplier).items():
        np.testing.assert_allclose(result[name], expected, rtol=1e-5, atol=1e-6)


def test_the_bias_multiplier_holds_under_loss_scaling():
    settings = Optimizer(momentum=MOMENTUM, bias_multiplier=2.0)
    scaled = keras.optimizers.LossScaleOptimizer(optimizers.build(settings, RATE), initial_scale=1024.0)
    result = ours(scaled, scale=1024.0)
    for name, expected in caffe(True, 2.0).items():
        np.testing.assert_allclose(result[name], expected, rtol=1e-5, atol=1e-6)


def test_the_bias_multiplier_holds_with_a_schedule():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1000], [RATE, 0.0])
    result = ours(optimizers.build(Optimizer(momentum=MOMENTUM, bias_multiplier=2.0), schedule))
    np.testing.assert_allclose(result["transform_bias"], caffe(True, 2.0)["transform_bias"], rtol=1e-5, atol=1e-6)


def test_the_optimiser_comes_back_from_its_config():
    before = optimizers.build(Optimizer(bias_multiplier=2.0), RATE)
    after = keras.optimizers.deserialize(keras.optimizers.serialize(before))
    assert after.get_config() == before.get_config()
    assert after.bias_multiplier == 2.0


def test_adam_and_clipping_are_keras_own():
    adam = optimizers.build(Optimizer(name="adam", clip_norm=5.0), RATE)
    assert type(adam) is keras.optimizers.Adam
    assert adam.global_clipnorm == 5.0


def test_sgd_without_momentum_takes_no_nesterov():
    assert not optimizers.build(Optimizer(momentum=0.0, nesterov=True), RATE).nesterov


def test_adam_with_a_bias_multiplier_is_refused():
    with pytest.raises(UserError, match="needs SGD"):
        optimizers.build(Optimizer(name="adam", bias_multiplier=2.0), RATE)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_mean_of_the_weights_is_put_in_and_taken_out_exactly(scaled):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    optimizer = optimizers.build(Optimizer(ema=0.5, momentum=0.0), RATE)
    model.compile(keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer, "mse")
    x, y = GENERATOR.normal(size=(4, 3)), GENERATOR.normal(size=(4, 2))
    history, mean = [], None
    for _ in range(4):
        model.train_on_batch(x, y)
        history.append(model.get_weights())
        # Keras starts the mean at the weights after the first step.
        mean = history[-1] if mean is None else [0.5 * m + 0.5 * w for m, w in zip(mean, history[-1], strict=True)]
    with optimizers.averaged(model):
        for weight, expected in zip(model.get_weights(), mean, strict=True):
            np.testing.assert_allclose(weight, expected, rtol=1e-5)
            assert not np.array_equal(weight, history[-1])
    for weight, expected in zip(model.get_weights(), history[-1], strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_without_a_mean_nothing_is_exchanged():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizers.build(Optimizer(), RATE), "mse")
    before = model.get_weights()
    with optimizers.averaged(model):
        for weight, expected in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(weight, expected)


def test_the_epsilon_of_adam_is_kerass_unless_another_is_asked_for():
    assert optimizers.build(Optimizer(name="adam"), RATE).epsilon == keras.optimizers.Adam().epsilon
    assert optimizers.build(Optimizer(name="adam", epsilon=1e-8), RATE).epsilon == 1e-8

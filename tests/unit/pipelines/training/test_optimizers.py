import keras
import numpy as np
import pytest

from highway_keras import HighwayConnection, HighwayStack, from_preset
from pipelines.core.optimizers import SGD, Adam, AdamW, Lion, Muon
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


def ours(optimizer, scale=1.0, steps=None):
    variables = {name: keras.Variable(value, name=name, dtype="float32") for name, value in START.items()}
    for gradients in GRADIENTS[:steps]:
        scaled = [keras.ops.cast(gradients[name] * scale, "float32") for name in variables]
        optimizer.apply(scaled, list(variables.values()))
    return {name: variable.numpy() for name, variable in variables.items()}


@pytest.mark.parametrize("multiplier", [1.0, 2.0])
@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_caffes(nesterov, multiplier):
    settings = SGD(momentum=MOMENTUM, nesterov=nesterov, bias_multiplier=multiplier)
    result = ours(optimizers.build(settings, RATE))
    for name, expected in caffe(nesterov, multiplier).items():
        np.testing.assert_allclose(result[name], expected, rtol=1e-5, atol=1e-6)


def test_the_bias_multiplier_holds_under_loss_scaling():
    settings = SGD(momentum=MOMENTUM, bias_multiplier=2.0)
    scaled = keras.optimizers.LossScaleOptimizer(optimizers.build(settings, RATE), initial_scale=1024.0)
    result = ours(scaled, scale=1024.0)
    for name, expected in caffe(True, 2.0).items():
        np.testing.assert_allclose(result[name], expected, rtol=1e-5, atol=1e-6)


def test_the_bias_multiplier_holds_with_a_schedule():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1000], [RATE, 0.0])
    result = ours(optimizers.build(SGD(momentum=MOMENTUM, bias_multiplier=2.0), schedule))
    np.testing.assert_allclose(result["transform_bias"], caffe(True, 2.0)["transform_bias"], rtol=1e-5, atol=1e-6)


def test_the_optimizer_is_rebuilt_from_its_config():
    before = optimizers.build(SGD(bias_multiplier=2.0), RATE)
    after = keras.optimizers.deserialize(keras.optimizers.serialize(before))
    assert after.get_config() == before.get_config()
    assert after.bias_multiplier == 2.0


def test_adam_and_clipping_are_keras_own():
    adam = optimizers.build(Adam(clip_norm=5.0), RATE)
    assert type(adam) is keras.optimizers.Adam
    assert adam.global_clipnorm == 5.0


def test_sgd_without_momentum_takes_no_nesterov():
    assert not optimizers.build(SGD(momentum=0.0, nesterov=True), RATE).nesterov


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw_decays_weights_and_no_biases(decay):
    adam = ours(optimizers.build(Adam(), RATE))
    result = ours(optimizers.build(AdamW(weight_decay=decay), RATE))
    np.testing.assert_allclose(result["transform_bias"], adam["transform_bias"], rtol=1e-6)
    # The decay is decoupled from the gradient: Adam's steps are the same, and weights shrink before each.
    expected, before = START["kernel"].astype("float32"), START["kernel"].astype("float32")
    for steps in range(1, len(GRADIENTS) + 1):
        now = ours(optimizers.build(Adam(), RATE), steps=steps)["kernel"]
        expected, before = expected * (1 - RATE * decay) + (now - before), now
    np.testing.assert_allclose(result["kernel"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_mean_of_the_weights_is_swapped_in_and_out_exactly(scaled):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    optimizer = optimizers.build(SGD(ema=0.5, momentum=0.0), RATE)
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


@pytest.mark.parametrize("ema", [None, 0.5])
def test_without_a_mean_or_before_the_first_step_nothing_is_swapped(ema):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizers.build(SGD(ema=ema), RATE), "mse")
    model.optimizer.build(model.trainable_variables)
    before = model.get_weights()
    with optimizers.averaged(model):
        for weight, expected in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(weight, expected)


def test_the_epsilon_of_adam_is_kerass_unless_another_is_asked_for():
    assert optimizers.build(Adam(), RATE).epsilon == keras.optimizers.Adam().epsilon
    assert optimizers.build(Adam(epsilon=1e-8), RATE).epsilon == 1e-8


@pytest.mark.parametrize(
    "settings", [SGD(momentum=MOMENTUM, bias_multiplier=2.0), Lion(), Muon()], ids=lambda s: s.name
)
def test_decay_is_decoupled_and_spares_biases_and_gains(settings):
    start = {"kernel": START["kernel"]} | dict.fromkeys(("transform_bias", "gamma", "beta"), START["transform_bias"])
    variables = {name: keras.Variable(value, name=name, dtype="float32") for name, value in start.items()}
    optimizer = optimizers.build(settings.model_copy(update={"weight_decay": 0.5}), RATE)
    for _ in range(3):
        optimizer.apply([keras.ops.zeros(each.shape) for each in variables.values()], list(variables.values()))
    for name, variable in variables.items():
        expected = start[name] * ((1 - RATE * 0.5) ** 3 if name == "kernel" else 1)
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)


def test_sgd_without_decay_never_touches_the_weights():
    assert optimizers.build(SGD(), RATE).weight_decay is None


@pytest.mark.parametrize("shape", [(3, 3, 4, 6), (5, 4, 4), (7, 3)], ids=["convolution", "stack", "dense"])
def test_a_step_of_muon_is_an_orthogonal_matrix_of_adams_size(shape):
    kernel = keras.Variable(np.zeros(shape), name="kernel", dtype="float32")
    optimizers.build(Muon(), RATE).apply([keras.ops.cast(GENERATOR.normal(size=shape), "float32")], [kernel])
    matrices = kernel.numpy().reshape((-1, *shape[-2:]) if len(shape) == 3 else (1, -1, shape[-1]))
    unit = RATE * 0.2 * max(matrices.shape[-2:]) ** 0.5
    # Five steps of Newton and Schulz bring the singular values near 1, not to it.
    assert np.all(np.abs(np.linalg.svd(matrices / unit, compute_uv=False) - 0.9) < 0.35)


def test_muon_leaves_biases_and_the_classifier_to_adam():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(4, name="logits")(keras.layers.Dense(4, name="hidden")(inputs)))
    optimizer = optimizers.build(Muon(), RATE)
    before = model.get_weights()
    gradients = [GENERATOR.normal(size=weight.shape).astype("float32") for weight in before]
    optimizer.apply([keras.ops.convert_to_tensor(gradient) for gradient in gradients], model.trainable_variables)
    steps = [new - old for new, old in zip(model.get_weights(), before, strict=True)]
    for step, gradient in list(zip(steps, gradients, strict=True))[1:]:
        np.testing.assert_allclose(step, -RATE * np.sign(gradient), rtol=1e-3)
    assert not np.allclose(np.abs(steps[0]), RATE, rtol=0.1)


def steps_of_muon(net):
    """Returns the step of each variable and its gradient, by layer and name."""
    optimizer, variables = optimizers.build(Muon(), RATE, net), net.trainable_variables
    before = [variable.numpy() for variable in variables]
    gradients = [GENERATOR.normal(size=variable.shape).astype("float32") for variable in variables]
    optimizer.apply([keras.ops.convert_to_tensor(gradient) for gradient in gradients], variables)
    steps = [variable.numpy() - old for variable, old in zip(variables, before, strict=True)]
    names = ["/".join(variable.path.split("/")[-2:]) for variable in variables]
    return dict(zip(names, zip(steps, gradients, strict=True), strict=True))


def is_orthogonal(step):
    """Returns whether the step of a matrix, or of several, is Muon's: with singular values near each other."""
    values = np.linalg.svd(step, compute_uv=False)
    return bool(np.all(values.max(-1) < 2.5 * values.min(-1)))


def test_muon_leaves_the_last_layer_to_adam_whatever_its_name():
    keras.utils.set_random_seed(0)
    inner = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, name="a"), keras.layers.Dense(3, name="a_1")])
    net = keras.Sequential([keras.Input((6,)), inner, keras.layers.Softmax()])
    steps = steps_of_muon(net)
    assert is_orthogonal(steps["a/kernel"][0])
    for path in ("a/bias", "a_1/kernel", "a_1/bias"):
        step, gradient = steps[path]
        np.testing.assert_allclose(step, -RATE * np.sign(gradient), rtol=1e-3)


def test_muon_takes_the_kernel_of_a_convolution_along_one_axis_for_one_matrix():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((9, 4))
    hidden = HighwayStack(3, name="stack")(keras.layers.Conv1D(4, 5, name="conv")(inputs))
    steps = steps_of_muon(keras.Model(inputs, keras.layers.Dense(2)(hidden)))
    convolution = steps["conv/kernel"][0]
    assert is_orthogonal(convolution.reshape(20, 4))
    assert not is_orthogonal(convolution)
    # One matrix for each layer.
    assert is_orthogonal(steps["stack/kernel"][0])


def test_muon_takes_a_stack_inside_another_layer_for_one_matrix_per_layer():
    keras.utils.set_random_seed(0)
    block = keras.Sequential([HighwayStack(3, name="stack"), keras.layers.Reshape((1, 4)), keras.layers.Conv1D(4, 1)])
    inputs = keras.Input((4,))
    hidden = HighwayConnection(keras.Sequential([block, keras.layers.Reshape((4,))]))(inputs)
    steps = steps_of_muon(keras.Model(inputs, keras.layers.Dense(2)(hidden)))
    assert is_orthogonal(steps["stack/kernel"][0])
    assert is_orthogonal(steps["stack/transform_kernel"][0])


@pytest.mark.parametrize("name", ["mnist_dense_10", "mnist_conv_16", "cifar10_modern", "fitnet_a", "factor"])
def test_the_last_layer_of_presets_is_the_one_named_logits(name):
    found = optimizers.build(Muon(), RATE, from_preset(name)).exclude_layers
    assert found == ["bias", "^logits/kernel$", "^logits/bias$"]


@pytest.mark.parametrize("settings", [Lion(), Muon(weight_decay=0.1)], ids=lambda s: s.name)
def test_other_optimizers_are_rebuilt_from_their_config(settings):
    before = optimizers.build(settings, RATE)
    after = keras.optimizers.deserialize(keras.optimizers.serialize(before))
    assert after.get_config() == before.get_config()

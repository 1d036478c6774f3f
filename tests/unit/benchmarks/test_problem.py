from dataclasses import replace

import keras
import numpy as np
import pytest

import highway_keras
from benchmarks import conv_problem, problem
from benchmarks.contestants import numpy_hand
from benchmarks.problem import Problem
from highway_keras.models.presets import PRESETS
from pipelines import recipes


class CountingArray(np.ndarray):
    """An array that counts the operations of its matrix products."""

    operations = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        plain = [np.asarray(x) if isinstance(x, CountingArray) else x for x in inputs]
        if ufunc is np.matmul:
            CountingArray.operations += 2 * plain[0].shape[0] * plain[0].shape[1] * plain[1].shape[1]
        if out is not None:
            kwargs["out"] = tuple(np.asarray(x) for x in out)
        return np.asarray(getattr(ufunc, method)(*plain, **kwargs)).view(CountingArray)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (problem.BATCH, problem.PIXELS)).astype(np.float32), rng.integers(0, 10, problem.BATCH)


@pytest.mark.parametrize(("depth", "width"), [(1, 50), (4, 50), (4, 20)])
def test_the_operation_count_is_that_of_the_manual_gradient(batch, depth, width):
    images, labels = batch
    weights = {name: value.view(CountingArray) for name, value in problem.initial_weights(depth, width).items()}
    CountingArray.operations = 0
    numpy_hand.gradient(weights, images.view(CountingArray), labels)
    assert CountingArray.operations == problem.flops(depth, width)


def test_the_manual_gradient_equals_central_differences_of_the_loss(batch):
    images, labels = batch
    weights = {name: value.astype(np.float64) for name, value in problem.initial_weights(3, 8).items()}
    _, gradients = numpy_hand.gradient(weights, images[:16], labels[:16])
    rng, step = np.random.default_rng(1), 1e-6
    for name, gradient in gradients.items():
        direction = rng.standard_normal(gradient.shape)
        ends = [
            numpy_hand.gradient({**weights, name: weights[name] + sign * step * direction}, images[:16], labels[:16])[0]
            for sign in (1, -1)
        ]
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(np.vdot(gradient, direction), rel=1e-5), name


def test_weights_are_those_of_the_study():
    weights = problem.initial_weights(30, 50)
    assert weights["kernel"].shape == (30, 50, 50)
    assert 0.99 / 50**0.5 < np.abs(weights["kernel"]).max() <= 1 / 50**0.5
    assert 0.99 / 28 < np.abs(weights["entry_kernel"]).max() <= 1 / 28
    assert np.all(weights["transform_bias"] == -2)
    assert np.all(problem.initial_weights(1000, 2)["transform_bias"] == -10)
    assert all(value.dtype == np.float32 for value in weights.values())


@pytest.mark.parametrize("count", [6000, 400])
def test_an_epoch_is_46_batches_of_any_data(count):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (count, 28, 28, 1)).astype(np.uint8), rng.integers(0, 10, count)
    epoch = problem.batches(images, labels)
    assert epoch["images"].shape == (46, 128, 784)
    assert epoch["labels"].shape == (46, 128)
    assert -1 <= epoch["images"].min() < -0.99
    assert 0.99 < epoch["images"].max() <= 1
    # Each image keeps its label.
    pixels = np.rint((epoch["images"][0, 0] + 1) * 127.5).reshape(28, 28, 1)
    (place,) = np.flatnonzero((images == pixels).all(axis=(1, 2, 3)))
    assert epoch["labels"][0, 0] == labels[place]


def test_a_problem_fits_on_a_command_line(tmp_path):
    weights = problem.initial_weights(2, 4)
    problem.write(tmp_path / "weights.npz", weights)
    asked = Problem("batches.npz", str(tmp_path / "weights.npz"), 2, 4, options=("compile",))
    assert Problem.from_json(asked.to_json()) == asked
    assert replace(asked, options=()) != asked
    for name, value in asked.initial().items():
        np.testing.assert_array_equal(value, weights[name])


@pytest.mark.parametrize("recipe", conv_problem.NETS)
def test_the_operations_of_the_convolutional_nets_are_those_of_their_layers(recipe):
    forward, first = 0, None
    for layer in highway_keras.from_preset(recipe).layers:
        kernels = [weight for weight in layer.trainable_weights if len(weight.shape) > 1]
        if kernels:
            places = int(np.prod(layer.output.shape[1:-1]))
            operations = sum(2 * places * int(np.prod(kernel.shape)) for kernel in kernels)
            first = first or operations
            forward += operations
    assert conv_problem.flops(conv_problem.NETS[recipe], 7) == 7 * (3 * forward - first)


@pytest.mark.parametrize("recipe", conv_problem.NETS)
def test_the_penalties_and_the_smoothing_are_those_of_the_recipe(recipe):
    net, config = conv_problem.NETS[recipe], recipes.get(recipe).config
    arguments = PRESETS[config.model.preset].arguments
    assert (net.l2, net.classifier_l2) == (arguments["l2"], arguments["classifier_l2"])
    assert net.normalized == arguments.get("batch_normalization", False)
    assert net.weight_decay == config.optimizer.weight_decay
    assert net.label_smoothing == config.label_smoothing
    assert (config.optimizer.momentum, config.optimizer.nesterov) == (conv_problem.MOMENTUM, True)
    assert net.learning_rate <= config.optimizer.learning_rate


def test_the_weights_of_a_model_have_names_of_layer_and_weight():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(2, name="logits")(inputs))
    assert {name: value.shape for name, value in conv_problem.weights_of(model).items()} == {
        "logits/kernel": (3, 2),
        "logits/bias": (2,),
    }

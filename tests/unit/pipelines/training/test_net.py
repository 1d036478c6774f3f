import dataclasses
import re
import sys

import keras
import numpy as np
import pytest

from highway_keras import HighwayConnection
from highway_keras.models import Stage
from pipelines.core.config import Augment, ModelConfig, StageConfig
from pipelines.core.errors import UserError
from pipelines.core.optimizers import SGD
from pipelines.training import net
from tests.toy_data import CONVOLUTIONS, ToyData, toy_config

DATA = ToyData().describe("toy")


def made(config, precision="float32", steps_per_epoch=10):
    return net.compiled(net.build(config, DATA, precision), config, precision, steps_per_epoch, False)


def test_the_net_has_the_size_of_the_data():
    built = net.build(toy_config(), DATA, "float32")
    assert built.input_shape == (None, 8, 8, 1)
    assert built.output_shape == (None, 4)
    assert not built.compiled


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 25 GB.")], ids=["NumPy", "JAX"]
)
def test_a_net_that_does_not_fit_into_memory_is_reported(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(net, "from_preset", fail)
    with pytest.raises(UserError, match="does not fit into memory"):
        net.build(toy_config(), DATA, "float32")


def test_the_seed_decides_the_weights():
    def weights(seed):
        return net.build(toy_config(seed=seed), DATA, "float32").get_weights()

    assert all(np.array_equal(one, other) for one, other in zip(weights(1), weights(1), strict=True))
    assert not all(np.array_equal(one, other) for one, other in zip(weights(1), weights(2), strict=True))
    net.build(toy_config(seed=2**40), DATA, "float32")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ModelConfig(preset="mnist_dense_50", match="parameters"), "match"),
        (ModelConfig(preset="mnist_conv_16", depth=3), "depth"),
        (ModelConfig(preset="nothing"), "no such preset"),
        (ModelConfig(preset="mnist_dense_50", activation="rleu"), "rleu"),
    ],
)
def test_errors_of_the_library_become_user_errors(model, message):
    with pytest.raises(UserError, match=message):
        net.build(toy_config(model=model), DATA, "float32")


@pytest.mark.parametrize(("frozen", "trained"), [(0, 3), (1, 2), ("all", 1)])
def test_frozen_layers_are_counted_from_the_input(frozen, trained):
    built = net.build(toy_config(freeze=frozen), DATA, "float32")
    assert [layer.trainable for layer in built.layers if layer.weights] == [False] * (3 - trained) + [True] * trained


def test_something_must_be_trained():
    with pytest.raises(UserError, match=r"must leave a layer to train. The net has 3. Received: 3"):
        net.build(toy_config(freeze=3), DATA, "float32")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"augment": Augment(cutout=9)}, "--augment.cutout 9 is larger than the images, of 8 x 8 pixels"),
        ({"augment": Augment(pad=100)}, "--augment.pad 100 is larger than the images"),
        ({"augment": Augment(mixup=0.2), "batch_size": 1}, "--augment.mixup mixes the images of a batch. Choose a"),
        ({"augment": Augment(cutmix=0.2), "batch_size": 1}, "--augment.cutmix mixes the images of a batch"),
    ],
)
def test_augmentation_that_leaves_or_changes_nothing_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        net.build(toy_config(**changes), DATA, "float32")


AVERAGED = CONVOLUTIONS.model_copy(
    update={"stages": (*CONVOLUTIONS.stages, StageConfig(filters=3, pool="average", dropout=0.2))}
)


@pytest.mark.parametrize("twin", ["", "_plain", "_residual"])
def test_a_net_that_starts_on_smaller_images_is_one_net_for_all_sizes(twin):
    config = toy_config(model=AVERAGED.model_copy(update={"preset": "mnist_conv_16" + twin}), small_side=5)
    built = net.build(config, DATA, "float32")
    model = net.compiled(built, config, "float32", 10, False)
    assert (built.input_shape, model.input_shape) == ((None, 8, 8, 1), (None, None, None, 1))
    assert len(model.variables) == len(built.variables)
    assert all(one is other for one, other in zip(model.variables, built.variables, strict=True))
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 1)).astype("float32")
    np.testing.assert_array_equal(model.predict(images, verbose=0), built.predict(images, verbose=0))
    assert model.predict(images[:, :5, :5], verbose=0).shape == (2, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": AVERAGED, "small_side": 8}, "--small-side 8 is not smaller than the images, of 8 x 8 pixels"),
        (
            {"model": CONVOLUTIONS, "small_side": 5},
            r"--small-side 5 needs a net .* global average pooling .*mnist_conv_16 cannot take images of 5 x 5 pixels",
        ),
        ({"small_side": 5}, "mnist_dense_50 cannot take images of 5 x 5 pixels"),
        ({"model": ModelConfig(preset="mnist_dense_50", whitened=True)}, "first layer.* is flatten, a Flatten"),
    ],
)
def test_nets_that_need_other_images_or_layers_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        net.build(toy_config(**changes), DATA, "float32")


def test_stages_are_fields():
    stages = (StageConfig(filters=3, blocks=(3, 1), pool=(2, 2)), StageConfig(filters=5, entry=1, pool="average"))
    built = net.build(toy_config(model=ModelConfig(preset="mnist_conv_16", stages=stages, hidden=7)), DATA, "float32")
    shapes = {layer.name: layer.output.shape[1:] for layer in built.layers if layer.weights}
    assert shapes == {
        "entry_1": (8, 8, 3),
        "highway_01": (8, 8, 3),
        "highway_02": (8, 8, 3),
        "entry_2": (4, 4, 5),
        "hidden": (7,),
        "logits": (4,),
    }
    assert {field.name: field.default for field in dataclasses.fields(Stage)} == {
        name: dataclasses.MISSING if field.is_required() else field.default
        for name, field in StageConfig.model_fields.items()
    }


def test_stages_of_a_dense_net_are_refused():
    model = ModelConfig(preset="mnist_dense_50", stages=(StageConfig(filters=3),))
    with pytest.raises(UserError, match="accepts the overrides"):
        net.build(toy_config(model=model), DATA, "float32")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"preset": "mnist_dense_50", "batch_normalization": True},
            "'mnist_dense_50' accepts the overrides --model.width, --model.activation, --model.dropout, --model.depth, "
            "--model.initializer, --model.transform-bias. Received: --model.batch-normalization=True",
        ),
        ({"preset": "mnist_dense_50_plain", "depth": 5000}, "Received: --model.depth=5000"),
    ],
)
def test_refused_settings_have_the_names_of_their_options(model, message):
    with pytest.raises(UserError, match=f"{re.escape(message)}$"):
        net.build(toy_config(model=ModelConfig(**model)), DATA, "float32")


OWN = """
import keras

def small(input_shape, outputs, width=3, dtype="float32", penalty=None):
    image = keras.Input(input_shape)
    x = keras.layers.Dense(width)(keras.layers.Flatten()(image))
    return keras.Model(image, keras.layers.Dense(outputs, dtype=dtype, kernel_regularizer=penalty)(x))

def penalized(input_shape, outputs):
    return small(input_shape, outputs, penalty=keras.regularizers.L2(1.0))

def half(**sizes):
    return small(**sizes, dtype="bfloat16")

def other(input_shape, outputs):
    return small(input_shape, outputs + 1)

def nothing(**sizes):
    return None

def sequential(input_shape, outputs):
    layers = [keras.layers.Flatten(), keras.layers.Dense(outputs)]
    return keras.Sequential([keras.Input(input_shape), *layers], name="mine")

def undefined(input_shape, outputs):
    return keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(outputs)])

def listed(input_shape, outputs, count=1):
    image = keras.Input(input_shape, name="image")
    flat = keras.layers.Flatten()(image)
    return keras.Model([image], [keras.layers.Dense(outputs)(flat) for _ in range(count)], name="mine")

def named(input_shape, outputs):
    net = listed(input_shape, outputs)
    return keras.Model({"image": net.inputs[0]}, {"logits": net.outputs[0]}, name="mine")

def several(input_shape, outputs):
    return listed(input_shape, outputs, 2)

class Subclass(keras.Model):
    def call(self, inputs):
        return inputs

def subclass(input_shape, outputs):
    model = Subclass()
    model.build((None, *input_shape))
    return model

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's own in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mynets.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("1 / 0")
    yield
    sys.modules.pop("mynets", None)


def test_a_net_comes_from_a_function_of_the_users_own(own):
    built = net.build(toy_config(model=ModelConfig(preset="mynets:small", width=5)), DATA, "float32")
    assert built.count_params() == 64 * 5 + 5 + 5 * 4 + 4


@pytest.mark.parametrize("kind", ["sequential", "listed", "named"])
def test_a_net_without_a_single_tensor_as_input_and_output_becomes_one_with_them(own, kind):
    built = net.build(toy_config(model=ModelConfig(preset=f"mynets:{kind}")), DATA, "float32")
    assert (built.input.shape, built.name, built.count_params()) == ((None, 8, 8, 1), "mine", 64 * 4 + 4)


@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ("nowhere:small", "no module nowhere"),
        ("mynets:large", "has no function large. It has: .*small"),
        ("mynets:number", "not a function"),
        ("broken:small", "ZeroDivisionError"),
        ("mynets:nothing", "keras.Model with defined inputs and outputs: .* Received: NoneType"),
        ("mynets:undefined", "that starts with an Input. Received: Sequential"),
        ("mynets:subclass", "Received: Subclass"),
        ("mynets:other", r"to \(None, 4\), logits in float32"),
        ("mynets:several", r"Received: a net from .* to \[\(None, 4\), \(None, 4\)\], float32"),
        ("mynets:half", "Received: a net from .* bfloat16"),
    ],
)
def test_what_a_function_of_the_users_own_returns_is_checked(own, preset, message):
    with pytest.raises(UserError, match=message):
        net.build(toy_config(model=ModelConfig(preset=preset)), DATA, "float32")


@pytest.mark.parametrize(
    ("asked", "steps", "taken"), [(1, 10, 1), (4, 10, 2), (5, 10, 5), (50, 10, 10), (50, 540, 45), (6, 7, 1)]
)
def test_executions_fill_an_epoch(asked, steps, taken):
    for stacked in (0, 30):
        assert net.steps_per_execution(toy_config(steps_per_execution=asked), steps, stacked) == taken


@pytest.mark.parametrize(("stacked", "taken"), [(0, 1), (3, 50), (60, 50), (120, 25), (999, 3), (5000, 1)])
def test_the_deeper_the_stack_the_fewer_steps_an_execution_has(stacked, taken):
    assert net.steps_per_execution(toy_config(), 600, stacked) == taken


@pytest.mark.parametrize(
    ("preset", "accelerated", "compiled", "steps"),
    [("mnist_dense_50", False, True, 50), ("mnist_dense_50_plain", False, False, 1), ("mnist_conv_16", False, False, 1)]
    + [(preset, True, None, 1) for preset in ("mnist_dense_50", "mnist_conv_16")],
)
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="JAX always compiles")
def test_on_a_cpu_tensorflow_compiles_stacks_alone(preset, accelerated, compiled, steps):
    config = toy_config(model=ModelConfig(preset=preset))
    data = ToyData(side=28).describe("toy")
    model = net.compiled(net.build(config, data, "float32"), config, "float32", 100, accelerated)
    assert compiled is None or model.jit_compile == compiled
    assert model.steps_per_execution == steps


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": ModelConfig(preset="mynets:small")}, "mynets:small may combine the examples of a batch"),
        ({"optimizer": SGD(learning_rate=0.1, clip_norm=1.0)}, "--optimizer.clip-norm would clip"),
    ],
    ids=["own", "clipped"],
)
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="JAX divides a compiled program")
def test_what_tensorflow_cannot_divide_is_refused(own, monkeypatch, changes, message):
    monkeypatch.setattr(net.placement, "used", lambda model: 2)
    with pytest.raises(UserError, match=f"this run trains on one device only: {message}.* choose --devices 1"):
        made(toy_config(**changes))


@pytest.mark.parametrize(("precision", "scaled"), [("float32", 0), ("mixed_bfloat16", 0), ("mixed_float16", 1)])
def test_loss_scaling_comes_with_float16_alone(precision, scaled):
    optimizer = made(toy_config(), precision).optimizer
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer) == scaled
    assert optimizer.built
    assert keras.config.dtype_policy().name == "float32"


def test_the_loss_smooths_labels():
    logits, labels = np.array([[2.0, 0, 0, 0]], "float32"), np.array([[1.0, 0, 0, 0]], "float32")
    log_probabilities = logits - np.log(np.exp(logits).sum())
    for smoothing in (0.0, 0.2):
        loss = made(toy_config(label_smoothing=smoothing)).compute_loss(y=labels, y_pred=logits)
        targets = labels * (1 - smoothing) + smoothing / 4
        assert float(loss) == pytest.approx(float(-(targets * log_probabilities).sum()), rel=1e-6)


def test_a_schedule_knows_the_steps_of_the_whole_run():
    config = toy_config(epochs=3, schedule={"kind": "cosine"}, optimizer=SGD(learning_rate=0.5))
    optimizer = made(config, steps_per_epoch=10).optimizer
    optimizer.iterations.assign(15)
    assert float(optimizer.learning_rate) == pytest.approx(0.25)
    optimizer.iterations.assign(30)
    assert float(optimizer.learning_rate) == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize(("ema", "slower"), [(0.99, 0.1), (0.5, 1.0)])
def test_running_statistics_average_over_as_many_steps_as_the_weights(ema, slower):
    images = np.random.default_rng(0).random((20, 8, 8, 1), "float32")
    truth = np.eye(4, dtype="float32")[np.arange(20) % 4]
    models = [made(toy_config(model=CONVOLUTIONS, optimizer=SGD(ema=one))) for one in (None, ema)]
    for model in models:
        model.train_on_batch(images, truth)
    plain, averaged = ({weight.path: weight.numpy() for weight in model.weights} for model in models)
    means = [path for path in plain if path.endswith("moving_mean")]
    # Of the entry and of the highway layer, both with a momentum of 0.9.
    assert len(means) == 2
    for path, value in plain.items():
        expected = slower * value if path in means else value
        if "moving_variance" not in path:
            np.testing.assert_allclose(averaged[path], expected, rtol=1e-4, atol=1e-7)


def test_the_statistics_of_a_block_average_as_slowly():
    block = keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization(momentum=0.9)])
    whole = keras.Sequential([keras.Input((4,)), HighwayConnection(block)])
    net.optimizers.slow_statistics(whole, 0.99)
    assert block.layers[-1].momentum == 0.99


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_any_number_of_classes_have_a_logit_each(smoothing):
    config = toy_config(label_smoothing=smoothing)
    data = dataclasses.replace(DATA, multi_label=True)
    model = net.compiled(net.build(config, data, "float32"), config, "float32", 10, False, task=data.task)
    images = np.random.default_rng(0).random((6, 8, 8, 1), "float32")
    truth = np.eye(4, dtype="float32")[[0, 1, 2, 3, 0, 1]]
    truth[0] = 1
    truth[1] = 0
    logits = model.predict(images, verbose=0).astype("float64")
    targets = truth * (1 - smoothing) + smoothing / 2
    plain, expected = ((np.logaddexp(0, logits) - y * logits).sum(axis=1).mean() for y in (truth, targets))
    found = model.evaluate(images, truth, batch_size=4, return_dict=True, verbose=0)
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    assert found["cross_entropy"] == pytest.approx(plain, rel=1e-5)
    assert found["label_accuracy"] == pytest.approx(((logits > 0) == truth).mean())
    assert set(found) == {"loss", "label_accuracy", "f1", "cross_entropy"}
    assert dataclasses.replace(DATA, labels=()).task == "regression"


@pytest.mark.parametrize("task", ["regression", "multi_label"])
def test_a_loss_with_penalties_has_a_metric_without_them(own, task):
    config = toy_config(model=ModelConfig(preset="mynets:penalized"))
    data = dataclasses.replace(DATA, labels=("a",) if task == "multi_label" else (), multi_label=task == "multi_label")
    model = net.compiled(net.build(config, data, "float32"), config, "float32", 10, False, task=task)
    images = np.random.default_rng(0).random((6, 8, 8, 1), "float32")
    truth = np.array([[0.0], [1], [1], [0], [1], [0]], "float32")
    found = model.evaluate(images, truth, batch_size=4, return_dict=True, verbose=0)
    penalty = np.square(model.layers[-1].get_weights()[0]).sum()
    assert penalty > 0.1
    assert found["loss"] - found[net.plain_loss(task, "mynets:penalized")] == pytest.approx(penalty, rel=1e-4)

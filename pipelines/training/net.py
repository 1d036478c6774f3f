"""Builds and compiles the net of a configuration."""

import re
from functools import partial
from typing import Any, Literal

import keras

from highway_keras import HighwayStack, from_preset
from highway_keras.models.stages import Stage
from pipelines.core import user_code
from pipelines.core.config import Augment, Config, ModelConfig
from pipelines.core.errors import UserError
from pipelines.data.sources import DataInfo, Task
from pipelines.training import devices as placement
from pipelines.training import memory, optimizers, schedules, whitening
from pipelines.training.data_parallel import DataParallelModel
from pipelines.training.divided_dropout import divided
from pipelines.training.initialization import fast_initializers
from pipelines.training.precision import Policy, policy
from pipelines.training.steps_per_execution import MultiStepModel, device_count

# With many steps per execution, a shallow dense net spends little time between executions. At 100 layers or more there
# is nothing to gain, and longer executions only take memory.
MOST_STEPS_PER_EXECUTION = 50
LAYERS_PER_EXECUTION = 3000


def build(config: Config, data: DataInfo, precision: Policy) -> keras.Model:
    """Builds the net of a configuration for its data, with initial weights drawn by its seed.

    Args:
        config: preset, overrides and seed.
        data: shape of the inputs and number of classes; without classes the net has one output.
        precision: Keras dtype policy.

    Returns:
        The net, from preprocessed inputs to logits or to a number. It is not compiled, so that it can be saved alone.

    Raises:
        UserError: the library refuses the settings, the images are too small for the net, or a setting does not apply
            to the data.
    """
    _refuse_unusable(config, data)
    outputs = len(data.labels) or 1
    settings = config.model.model_dump(exclude={"preset", "stages", "whitened"}, exclude_none=True)
    if config.model.stages:
        settings["stages"] = tuple(Stage(**stage.model_dump()) for stage in config.model.stages)
    preset = config.model.preset
    factory = user_code.function(preset) if user_code.is_function(preset) else partial(from_preset, preset)
    keras.utils.set_random_seed(config.seed % 2**32)
    try:
        with policy(precision), fast_initializers():
            net = factory(input_shape=data.inputs, outputs=outputs, **settings)
    except (ValueError, TypeError) as error:
        reason = str(error) if user_code.is_function(preset) else _by_options(str(error))
        raise UserError(
            f"the net '{config.model.preset}' cannot be built for {data.name} "
            f"(inputs of {'x'.join(map(str, data.inputs))}, outputs: {outputs}): {reason}"
        ) from error
    except Exception as error:
        if not memory.is_exhausted(error):
            raise
        raise UserError(
            f"the net '{preset}' does not fit into memory. Lower --model.width, --model.depth or --image-size."
        ) from error

    net = _checked(net, preset, data.inputs, outputs)
    if config.model.whitened:
        whitening.first_convolution(net)
    if config.small_side:
        _check_small(net, config)
    _freeze(net, config.freeze)
    return net


def _by_options(message: str) -> str:
    """Names the settings in a message of `from_preset` as on the command line."""
    fields = ModelConfig.model_fields.keys() - {"preset"}

    def option(name: str) -> str:
        return "--model." + name.replace("_", "-")

    def listed(names: re.Match[str]) -> str:
        # The data decide about inputs and outputs.
        return ", ".join(option(name) for name in names[0].split(", ") if name in fields)

    message = re.sub(r"(?<= accepts the overrides )[\w, ]+", listed, message)
    names = "|".join(fields)
    return re.sub(rf"`({names})`|\b({names})(?==)", lambda found: option(found[1] or found[2]), message)


def _freeze(net: keras.Model, count: int | Literal["all"]) -> None:
    layers = [layer for layer in net.layers if layer.weights]
    if count == "all":
        count = len(layers) - 1
    if count >= len(layers):
        raise UserError(f"--freeze must leave a layer to train. The net has {len(layers)}. Received: {count}.")
    for layer in layers[:count]:
        layer.trainable = False


def _checked(net: Any, preset: str, shape: tuple[int, ...], outputs: int) -> keras.Model:
    """Returns the model that the user's own function returned, as a functional one; presets need no check."""
    inputs: list[Any] = getattr(net, "inputs", None) or []
    outs: list[Any] = getattr(net, "outputs", None) or []
    ends = (getattr(net, name, None) for name in ("input", "output"))
    if len(inputs) == len(outs) == 1 and not all(isinstance(end, keras.KerasTensor) for end in ends):
        # Sequential models have no symbolic input and output of their own; others a list or a dictionary of one.
        net = keras.Model(inputs[0], outs[0], name=net.name)
    if not isinstance(net, keras.Model) or not hasattr(net, "inputs"):
        raise UserError(
            f"{preset} must return a keras.Model with defined inputs and outputs: a functional one, or a sequential "
            f"one that starts with an Input. Received: {type(net).__name__}."
        )
    expected = (None, *shape), (None, outputs), "float32"
    found = net.input_shape, net.output_shape, keras.backend.standardize_dtype(net.outputs[0].dtype)
    if found != expected:
        raise UserError(
            f"{preset} must return a net from {expected[0]} to {expected[1]}, logits in float32 (dtype='float32' of "
            f"the last layer). Received: a net from {found[0]} to {found[1]}, {found[2]}."
        )
    return net


def _check_small(net: keras.Model, config: Config) -> None:
    """Refuses a smaller size of images that is none, or that the net cannot be trained with."""
    height, width = net.input_shape[1:3]
    if config.small_side >= min(height, width):
        raise UserError(
            f"--small-side {config.small_side} is not smaller than the images, of {height} x {width} pixels. Choose a "
            "smaller number, or 0 to train at full size from the start."
        )
    small = config.small_size(height, width)
    try:
        for size in (small, (None, None)):
            _resized(net, size)
    except Exception as error:
        # Layers of all kinds, those of the user's own included, refuse a shape in ways of their own.
        raise UserError(
            f"--small-side {config.small_side} needs a net for images of any size, with global average pooling before "
            f"its last layers. {config.model.preset} cannot take images of {small[0]} x {small[1]} pixels "
            f"({str(error).strip().partition(chr(10))[0].rstrip('.')}). Leave it out, or choose another net."
        ) from error


def _resized(net: keras.Model, size: tuple[int | None, int | None]) -> keras.Model:
    """Returns a net of the same layers, with the same weights and seeds, for images of another size; None for any."""
    image = keras.Input((*size, net.input_shape[-1]), name=net.inputs[0].name, dtype="float32")
    # Nets of other classes, which the user's own may have, are cloned in other ways.
    functional = keras.Model(net.input, net.output, name=net.name)
    return keras.models.clone_model(functional, input_tensors=image, clone_function=lambda layer: layer)


def _refuse_unusable(config: Config, data: DataInfo) -> None:
    of_images = {
        "--preprocess.contrast": config.preprocess.contrast,
        **{f"--augment.{name}": value != getattr(Augment(), name) for name, value in config.augment},
        "--small-side": config.small_side,
    }
    settings = {
        **(of_images if len(data.shape) == 1 else {}),
        "--label-smoothing": config.label_smoothing and not data.labels,
    }
    unusable = ", ".join(name for name, value in settings.items() if value)
    if unusable:
        kind = "a table, without images" if data.labels else "a regression on vectors, without images and classes"
        raise UserError(f"{data.name} is {kind} for {unusable}. Omit these, or choose other data.")
    augment = config.augment
    if config.batch_size == 1 and (augment.mixup or augment.cutmix):
        name = "mixup" if augment.mixup else "cutmix"
        raise UserError(
            f"--augment.{name} mixes the images of a batch. Choose a --batch-size above 1, or leave it out."
        )
    # Nothing is left of most images.
    for name in ("pad", "cutout"):
        if (pixels := getattr(augment, name)) > min(data.inputs[:2]) and len(data.shape) > 1:
            size = " x ".join(map(str, data.inputs[:2]))
            raise UserError(
                f"--augment.{name} {pixels} is larger than the images, of {size} pixels. Choose a smaller number."
            )
    if data.columns and config.preprocess.scale != 1:
        raise UserError(
            f"the columns of {data.name} are standardized, so that there is nothing to scale. Train the recipe "
            f"`table`, or add --preprocess.scale 1. Received: --preprocess.scale {config.preprocess.scale:g}."
        )


def compiled(
    net: keras.Model,
    config: Config,
    precision: Policy,
    steps_per_epoch: int,
    accelerated: bool,
    *,
    task: Task = "classification",
    devices: int | None = None,
    rate: keras.optimizers.schedules.LearningRateSchedule | None = None,
) -> keras.Model:
    """Compiles a model that shares the weights of a net, with loss, metric and a built optimizer.

    If the net trains on smaller images at first, the model takes images of any size.

    Args:
        net: the result of `build`.
        config: optimizer, schedule, loss.
        precision: the policy of `net`; "mixed_float16" adds dynamic loss scaling.
        steps_per_epoch: steps in an epoch.
        accelerated: whether there is a GPU or TPU.
        task: "classification" has the cross-entropy as its loss, "multi_label" the sum of the binary cross-entropies of
            the classes, and "regression" the mean squared error.
        devices: number of devices per process that was asked for, or that a resumed run had; None chooses it. On
            TensorFlow, `devices.scope` sets it.
        rate: learning rate in place of the configuration's schedule.

    Returns:
        The compiled model.

    Raises:
        UserError: the schedule does not fit the number of steps, or the net cannot be trained on several devices.
    """
    if rate is None:
        rate = schedules.rate(config.schedule, config.optimizer.learning_rate, config.epochs * steps_per_epoch)
    optimizer = optimizers.build(config.optimizer, rate, net)
    if config.optimizer.ema is not None:
        optimizers.slow_statistics(net, config.optimizer.ema)
    loss, metrics = _objective(task, config, net.output_shape[-1])
    stack = next((layer for layer in net.layers if isinstance(layer, HighwayStack)), None)
    on_jax = keras.backend.backend() == "jax"
    with policy(precision):
        model = _model(_resized(net, (None, None)) if config.small_side else net, config, stack, accelerated, devices)
        mirrored = not on_jax and placement.used(model) > 1
        model.compile(
            optimizer=optimizer,
            loss=loss,
            metrics=metrics,
            # The cross-entropies of the classes are added, as their probabilities are multiplied, so that the learning
            # rate of a recipe suits any number of them.
            loss_weights=float(net.output_shape[-1]) if task == "multi_label" else None,
            # On a CPU only stacks gain from XLA; convolutions become much slower.
            jit_compile=False if mirrored else "auto" if accelerated or on_jax else stack is not None,
            # With mirrored variables, TensorFlow can neither compile a step with XLA nor run a loop over steps.
            steps_per_execution=1
            if mirrored
            else steps_per_execution(config, steps_per_epoch, stacked=0 if accelerated or not stack else stack.depth),
        )
        model.optimizer.build(model.trainable_variables)
    return model


def _model(
    net: keras.Model, config: Config, stack: HighwayStack | None, accelerated: bool, devices: int | None
) -> keras.Model:
    """Returns the model that trains a net: on JAX, one for its number of devices."""
    ends = {"inputs": net.input, "outputs": net.output, "name": net.name}
    has_state = bool(net.non_trainable_variables)
    # A net of the user's own may combine the examples of a batch; XLA divides it correctly.
    own = user_code.is_function(config.model.preset)
    if keras.backend.backend() != "jax":
        model = keras.Model(**ends)
        compiles = accelerated or stack is not None
        return model if placement.used(model) == 1 else _mirrored(net, config, compiles)
    if devices is not None:
        count = placement.fitting(config.batch_size, devices)
    elif stack and not accelerated and not has_state and not own and placement.processes() == 1:
        count = device_count(config.batch_size, placement.available(), (stack.depth, stack.kernel.shape[-1]))
    else:
        count = 1
    several = count * placement.processes() > 1
    if several and not accelerated and not own and (parts := divided(net)):
        # Processes exchange many small arrays far more slowly than one that holds them all.
        return MultiStepModel(parts.input, parts.output, name=net.name, devices=count)
    if stack and not accelerated and not several:
        return MultiStepModel(**ends, devices=count)
    return DataParallelModel(**ends, devices=count) if several else keras.Model(**ends)


def _mirrored(net: keras.Model, config: Config, compiled: bool) -> keras.Model:
    """Returns the model that trains a net on several devices with TensorFlow, with the results of one device.

    Args:
        net: the net.
        config: preset and optimizer.
        compiled: whether XLA compiles the training on one device.
    """
    reason = None
    if user_code.is_function(config.model.preset):
        reason = f"{config.model.preset} may combine the examples of a batch, of which each device has only a part"
    elif config.optimizer.clip_norm:
        # Keras clips the gradient of each part before it adds them.
        reason = "--optimizer.clip-norm would clip the gradient of each device's part of a batch on its own"
    if reason:
        raise UserError(
            f"on TensorFlow, this run trains on one device only: {reason}. Set KERAS_BACKEND=jax, or choose "
            "--devices 1."
        )
    from pipelines.training.mirrored_dropout import mirrored

    parts = mirrored(net, compiled)
    return keras.Model(parts.input, parts.output, name=net.name)


def plain_loss(task: Task, preset: str) -> str:
    """Returns the name of the metric that is the loss without label smoothing and penalties.

    Without an accuracy, it decides which epoch and which trial are the best: none may win by its penalty or smoothing.

    Args:
        task: the task of the net.
        preset: its preset. Those for regression have no penalties, so that the loss itself is this metric; a net of
            the user's own may have some.

    Returns:
        The name; "loss" if there is no such metric.
    """
    if task == "multi_label":
        return "cross_entropy"
    return "mse" if task == "regression" and user_code.is_function(preset) else "loss"


def _objective(task: Task, config: Config, outputs: int) -> tuple[keras.losses.Loss, list[keras.metrics.Metric]]:
    """Returns loss and metrics."""
    plain = plain_loss(task, config.model.preset)
    if task == "regression":
        squared = [keras.metrics.MeanSquaredError(name=plain)] if plain != "loss" else []
        return keras.losses.MeanSquaredError(), [keras.metrics.MeanAbsoluteError(name="mae"), *squared]
    if task == "multi_label":
        right = keras.metrics.MeanMetricWrapper(_labels_right, name="label_accuracy")
        entropy = keras.metrics.MeanMetricWrapper(_cross_entropy, name=plain)
        loss = keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=config.label_smoothing)
        return loss, [right, MacroF1(outputs), entropy]
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=config.label_smoothing)
    return loss, [keras.metrics.CategoricalAccuracy(name="accuracy")]


class MacroF1(keras.metrics.Metric):
    """The mean F1 of all classes that occur or are predicted, with a probability of more than one half.

    Args:
        classes: number of classes, each with its own logit.
    """

    def __init__(self, classes: int) -> None:
        super().__init__(name="f1")
        self.hits, self.named = (
            self.add_weight(shape=(classes,), initializer="zeros", name=name) for name in ("hits", "named")
        )

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Counts correct predictions, and predictions and occurrences, of each class."""
        del sample_weight
        true, predicted = (keras.ops.cast(one, self.dtype) for one in _decided(y_true, y_pred))
        self.hits.assign_add(keras.ops.sum(true * predicted, axis=0))
        self.named.assign_add(keras.ops.sum(true + predicted, axis=0))

    def result(self) -> Any:
        """Returns the mean F1."""
        count = keras.ops.sum(keras.ops.cast(self.named > 0, self.dtype))
        return keras.ops.sum(2 * self.hits / keras.ops.maximum(self.named, 1)) / keras.ops.maximum(count, 1)


def _labels_right(y_true: Any, y_pred: Any) -> Any:
    """Returns the share of the classes of each example on which targets and logits agree, [b]."""
    return keras.ops.mean(keras.ops.cast(keras.ops.equal(*_decided(y_true, y_pred)), "float32"), axis=-1)


def _cross_entropy(y_true: Any, y_pred: Any) -> Any:
    """Returns the cross-entropy of each example, a sum over the classes as in the loss, [b]."""
    return y_pred.shape[-1] * keras.losses.binary_crossentropy(y_true, y_pred, from_logits=True)


def _decided(targets: Any, logits: Any) -> tuple[Any, Any]:
    """Returns which classes examples have, and which their logits predict, bool [b, classes]."""
    return keras.ops.greater(targets, 0.5), keras.ops.greater(logits, 0.0)


def steps_per_execution(config: Config, steps_per_epoch: int, stacked: int) -> int:
    """Returns the number of steps per execution: the largest divisor of an epoch's steps up to the requested number.

    With a number that does not divide it, the last execution of an epoch would run past its end.

    Args:
        config: the requested number, or "auto".
        steps_per_epoch: steps in an epoch.
        stacked: layers in the net's stack if it trains on a CPU, else 0. With "auto", an execution of a stack takes a
            fraction of a second: long enough to make the cost of the call negligible, short enough to show progress.
    """
    short = min(MOST_STEPS_PER_EXECUTION, max(1, LAYERS_PER_EXECUTION // stacked)) if stacked else 1
    asked = short if config.steps_per_execution == "auto" else config.steps_per_execution
    return next(steps for steps in range(min(asked, steps_per_epoch), 0, -1) if steps_per_epoch % steps == 0)

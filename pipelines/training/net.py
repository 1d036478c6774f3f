"""From a configuration to a net, and to what trains it."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras

import highway_keras.models
from highway_keras import HighwayStack
from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.data.sources import DataInfo
from pipelines.training import optimizers
from pipelines.training.many_steps import ManySteps
from pipelines.training.precision import Policy, policy

# A dense net of 30 layers makes 1.5 (TensorFlow) to 2.2 times (JAX) as many steps a second in executions of 36 steps or
# more as in single ones, one of 100 layers or more gains nothing; and batches of more steps take memory for nothing.
MANY_STEPS = 50
LAYERS_PER_EXECUTION = 3000


def build(config: Config, data: DataInfo, precision: Policy) -> keras.Model:
    """The net of a configuration, in the size that the data asks for, with weights drawn by the seed.

    Args:
        config: preset, what differs from it, and the seed.
        data: shape of the inputs and number of classes; without classes the net gives one number.
        precision: Keras dtype policy.

    Returns:
        The net, from preprocessed inputs to logits or to a number; not compiled, so that it can be saved alone.

    Raises:
        UserError: if the library refuses the settings, the images are too small for the net, or the data have no
            use for a setting.
    """
    _refuse_unusable(config, data)
    outputs = len(data.labels) or 1
    settings = config.model.model_dump(exclude={"preset"}, exclude_none=True)
    keras.utils.set_random_seed(config.seed % 2**32)
    try:
        with policy(precision), drawing():
            return highway_keras.models.from_preset(
                config.model.preset, input_shape=data.shape, outputs=outputs, **settings
            )
    except (ValueError, TypeError) as error:
        raise UserError(
            f"the net '{config.model.preset}' cannot be made for {data.name} "
            f"(inputs of {'x'.join(map(str, data.shape))}, outputs: {outputs}): {error}"
        ) from error


@contextmanager
def drawing() -> Iterator[None]:
    """Disables most optimizations of programs that JAX compiles in the block, for drawing initial weights.

    JAX compiles a program for each shape of weights, which takes 0.3 to 0.7 s each; without most optimizations 0.1 s.
    Numbers differ by rounding at most. Other backends do not compile for that.

    Example:
        with drawing():
            net = highway_keras.from_preset("mnist_dense_50")
    """
    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def _refuse_unusable(config: Config, data: DataInfo) -> None:
    settings = {
        "--preprocess.contrast": config.preprocess.contrast,
        "--augment.pad": config.augment.pad,
        "--augment.mirror": config.augment.mirror,
        "--label-smoothing": config.label_smoothing,
    }
    unusable = [name for name, value in settings.items() if value]
    if unusable and not data.labels:
        raise UserError(
            f"{data.name} holds vectors, each with a number to predict: there are no images and classes for "
            f"{', '.join(unusable)}. Leave that out, or take other data."
        )


def compiled(
    net: keras.Model,
    config: Config,
    precision: Policy,
    steps_per_epoch: int,
    accelerated: bool,
    *,
    regression: bool = False,
) -> keras.Model:
    """A model around the same weights, with loss, metric and a built optimiser.

    Args:
        net: from `build`.
        config: optimiser, schedule, loss.
        precision: the policy of `net`; "mixed_float16" brings dynamic loss scaling.
        steps_per_epoch: steps in an epoch.
        accelerated: whether there is a GPU or TPU.
        regression: whether the net predicts a number, by the mean squared error, not a class.

    Returns:
        The compiled model.

    Raises:
        UserError: if optimiser or schedule cannot be what they are asked to be.
    """
    rate = optimizers.rate(config.schedule, config.optimizer.learning_rate, config.epochs * steps_per_epoch)
    optimizer = optimizers.build(config.optimizer, rate)
    loss = (
        keras.losses.MeanSquaredError()
        if regression
        else keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=config.label_smoothing)
    )
    metric = (
        keras.metrics.MeanAbsoluteError(name="mae")
        if regression
        else keras.metrics.CategoricalAccuracy(name="accuracy")
    )
    stack = next((layer for layer in net.layers if isinstance(layer, HighwayStack)), None)
    on_jax = keras.backend.backend() == "jax"
    with policy(precision):
        if stack and on_jax and not accelerated:
            model = ManySteps(net.input, net.output, batch_size=config.batch_size, name=net.name)
        else:
            model = keras.Model(net.input, net.output, name=net.name)
        model.compile(
            optimizer=optimizer,
            loss=loss,
            metrics=[metric],
            # On a CPU XLA pays for stacks alone: float32 steps of mnist_conv_32 took 862 ms with it and 171 without.
            jit_compile="auto" if accelerated or on_jax else stack is not None,
            steps_per_execution=steps_per_execution(
                config, steps_per_epoch, stacked=0 if accelerated or not stack else stack.depth
            ),
        )
        model.optimizer.build(model.trainable_variables)
    return model


def steps_per_execution(config: Config, steps_per_epoch: int, stacked: int) -> int:
    """The largest divisor of an epoch's steps that is not above what was asked for.

    Keras would run the last execution of an epoch over its end.

    Args:
        config: asks for a number, or "auto".
        steps_per_epoch: steps in an epoch.
        stacked: layers of the net's stack where it is trained on a CPU, else 0. With "auto" an execution then takes a
            fraction of a second: calling it costs next to nothing, and progress is still seen.
    """
    short = min(MANY_STEPS, max(1, LAYERS_PER_EXECUTION // stacked)) if stacked else 1
    asked = short if config.steps_per_execution == "auto" else config.steps_per_execution
    return next(steps for steps in range(min(asked, steps_per_epoch), 0, -1) if steps_per_epoch % steps == 0)

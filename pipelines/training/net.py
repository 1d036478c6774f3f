"""From a configuration to a net, and to what trains it."""

import keras

import highway_keras.models
from pipelines.config import Config
from pipelines.data.sources import DataInfo
from pipelines.errors import UserError
from pipelines.training import optimizers, schedules
from pipelines.training.precision import Policy, policy


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
        with policy(precision):
            return highway_keras.models.from_preset(
                config.model.preset, input_shape=data.shape, outputs=outputs, **settings
            )
    except (ValueError, TypeError) as error:
        raise UserError(
            f"the net '{config.model.preset}' cannot be made for {data.name} "
            f"(inputs of {'x'.join(map(str, data.shape))}, outputs: {outputs}): {error}"
        ) from error


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
    rate = schedules.build(config.schedule, config.optimizer.learning_rate, config.epochs * steps_per_epoch)
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
    with policy(precision):
        model = keras.Model(net.input, net.output, name=net.name)
        model.compile(
            optimizer=optimizer,
            loss=loss,
            metrics=[metric],
            # On a CPU, float32 steps with / without XLA took 862 / 171 ms (mnist_conv_32), 24 / 10 (mnist_dense_50).
            jit_compile="auto" if accelerated or keras.backend.backend() != "tensorflow" else False,
            steps_per_execution=steps_per_execution(config, steps_per_epoch),
        )
        model.optimizer.build(model.trainable_variables)
    return model


def steps_per_execution(config: Config, steps_per_epoch: int) -> int:
    """The largest divisor of an epoch's steps that is not above what was asked for.

    Keras would run the last execution of an epoch over its end.
    """
    asked = min(config.steps_per_execution, steps_per_epoch)
    return next(steps for steps in range(asked, 0, -1) if steps_per_epoch % steps == 0)

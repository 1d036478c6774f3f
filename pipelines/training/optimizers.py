"""Optimizers and the moving average of the weights."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, assert_never

import keras
import numpy as np
from keras import ops

from highway_keras import HighwayStack
from highway_keras.analysis.compiling import leaf_layers
from highway_keras.analysis.layout import trace
from pipelines.core.optimizers import SGD, Adam, AdamW, Lion, Muon, Optimizer

# Decay of a gate's bias would open a gate that starts closed; the others are gains and offsets of batch normalization.
NOT_DECAYED = ["bias", "gamma", "beta"]


@keras.saving.register_keras_serializable(package="highway_pipelines")
class BiasRateSGD(keras.optimizers.SGD):
    """SGD with a separate learning rate for biases, like Caffe's `lr_mult`.

    The multiplier scales the rate inside the momentum; with a constant rate, this scales the whole step.

    Args:
        learning_rate: number or schedule, for everything but biases.
        bias_multiplier: factor on the rate of each variable whose name contains "bias".
        **kwargs: further arguments of `keras.optimizers.SGD`.
    """

    def __init__(self, learning_rate: Any = 0.01, bias_multiplier: float = 1.0, **kwargs: Any) -> None:
        super().__init__(learning_rate, **kwargs)
        self.bias_multiplier = bias_multiplier

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable; called by Keras."""
        if "bias" in variable.name:
            learning_rate = learning_rate * self.bias_multiplier
        super().update_step(gradient, variable, learning_rate)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the optimizer."""
        return {**super().get_config(), "bias_multiplier": self.bias_multiplier}


@keras.saving.register_keras_serializable(package="highway_pipelines")
class KernelMuon(keras.optimizers.Muon):
    """Muon that also updates the kernels of convolutions and stacks, which Keras's own leaves to Adam.

    The kernel of a convolution is one matrix, from all inputs of a position to the filters, and that of a stack one
    matrix per layer. Biases, gains and the last layer are Adam's. The step is scaled to the size of Adam's, so that
    both take the same learning rate.

    Args:
        learning_rate: number or schedule.
        momentum: Nesterov momentum of the kernels.
        weight_decay: decoupled weight decay of all variables that are not excluded; None for none.
        matrices: paths of variables with three axes that are one matrix; others are one matrix for each first index.
        **kwargs: further arguments of `keras.optimizers.Muon`.

    Reference:
        Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; Liu et al. 2025, arXiv 2502.16982 (scale).
    """

    def __init__(
        self,
        learning_rate: Any = 0.002,
        *,
        momentum: float = 0.95,
        weight_decay: float | None = None,
        matrices: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        # The biases of a stack are matrices too.
        by_adam = {"exclude_layers": ["bias", "logits"], "adam_weight_decay": weight_decay}
        super().__init__(learning_rate, momentum=momentum, weight_decay=weight_decay, **by_adam | kwargs)
        self.matrices = list(matrices)

    def build(self, var_list: list[Any]) -> None:
        """Creates the variables of the optimizer; called by Keras."""
        super().build(var_list)
        excluded = [any(re.search(word, variable.path) for word in self.exclude_layers) for variable in var_list]
        self.shapes = [
            None if out or len(each.shape) < 3 else self._matrices_of(each)
            for each, out in zip(var_list, excluded, strict=True)
        ]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable; called by Keras."""
        index = self._get_variable_index(variable)
        if (shape := self.shapes[index]) is None:
            super().update_step(gradient, variable, learning_rate)
            return
        momentum = self.momentums[index]
        self.assign(momentum, momentum * self.momentum + gradient)
        ahead = gradient + momentum * self.momentum
        step = self.zeropower_via_newtonschulz5(ops.reshape(ahead, shape), self.ns_steps)
        scale = self.rms_rate * max(step.shape[-2:]) ** 0.5
        step = ops.reshape(step, variable.shape)
        self.assign_sub(variable, step * ops.cast(learning_rate, variable.dtype) * scale)

    def _matrices_of(self, kernel: Any) -> tuple[int, ...]:
        """Returns the shape of a kernel as one matrix, or as one for each layer of a stack."""
        shape = tuple(kernel.shape)
        return shape if len(shape) == 3 and kernel.path not in self.matrices else (-1, shape[-1])

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the optimizer."""
        return {**super().get_config(), "matrices": self.matrices}


def build(settings: Optimizer, learning_rate: Any, net: keras.Model | None = None) -> keras.optimizers.Optimizer:
    """Builds the Keras optimizer of a configuration.

    Args:
        settings: the optimizer and its hyperparameters.
        learning_rate: number or schedule, from `schedules.rate`.
        net: the net that it trains, whose last layer and convolutions Muon distinguishes.

    Returns:
        The optimizer, not built yet. With `settings.ema` it keeps a moving average of the weights.
    """
    shared: dict[str, Any] = {"global_clipnorm": settings.clip_norm}
    if settings.ema is not None:
        shared |= {"use_ema": True, "ema_momentum": settings.ema}
    # Keras multiplies by a decay of 0; None leaves the weights alone.
    decay = getattr(settings, "weight_decay", 0.0) or None
    optimizer = _optimizer(settings, learning_rate, shared | {"weight_decay": decay}, net)
    optimizer.exclude_from_weight_decay(var_names=NOT_DECAYED)
    return optimizer


def _kinds_of_kernels(net: keras.Model) -> dict[str, Any]:
    """Returns the arguments of `KernelMuon` that depend on the net."""
    layers = [layer for layer in leaf_layers(net) if layer.trainable_weights]
    last = [f"^{re.escape(weight.path)}$" for weight in layers[-1].trainable_weights] if layers else []
    # Stacks may be inside other layers, such as a `HighwayConnection`, of which Keras lists none.
    called = trace(net, net.inputs[0])[0].layers.values()
    stacked = {weight.path for layer in called if isinstance(layer, HighwayStack) for weight in layer.weights}
    kernels = [weight.path for weight in net.trainable_weights if len(weight.shape) == 3 and weight.path not in stacked]
    return {"exclude_layers": ["bias", *last], "matrices": kernels}


def _optimizer(
    settings: Optimizer, learning_rate: Any, shared: dict[str, Any], net: keras.Model | None
) -> keras.optimizers.Optimizer:
    match settings:
        case SGD(momentum=momentum):
            return BiasRateSGD(
                learning_rate,
                bias_multiplier=settings.bias_multiplier,
                momentum=momentum,
                nesterov=settings.nesterov and momentum > 0,
                **shared,
            )
        case Adam(epsilon=epsilon):
            return keras.optimizers.Adam(learning_rate, epsilon=epsilon, **shared)
        case AdamW(epsilon=epsilon, weight_decay=weight_decay):
            return keras.optimizers.AdamW(learning_rate, epsilon=epsilon, **shared | {"weight_decay": weight_decay})
        case Lion():
            return keras.optimizers.Lion(learning_rate, settings.beta_1, settings.beta_2, **shared)
        case Muon(momentum=momentum):
            return KernelMuon(learning_rate, momentum=momentum, **shared, **(_kinds_of_kernels(net) if net else {}))
        case _:
            assert_never(settings)


def slow_statistics(net: keras.Model, ema: float) -> None:
    """Lets the running statistics of batch normalization average over at least as many steps as the weights do.

    Those of the last steps belong to weights that the moving average has long smoothed out. Training itself uses the
    statistics of the batch and does not change.

    Args:
        net: the net, before it is compiled. Layers inside layers of the user's own keep their momentum.
        ema: momentum of the moving average of the weights.
    """
    for layer in _normalizations(net):
        layer.momentum = max(layer.momentum, ema)


def _normalizations(layer: Any) -> Iterator[keras.layers.BatchNormalization]:
    """Yields the batch normalization in a layer: in a model, a highway layer, or the block of a `HighwayConnection`."""
    if isinstance(layer, keras.layers.BatchNormalization):
        yield layer
    inside = [*getattr(layer, "layers", ()), *(getattr(layer, name, None) for name in ("normalization", "block"))]
    for one in inside:
        if isinstance(one, keras.Layer):
            yield from _normalizations(one)


@contextmanager
def averaged(model: keras.Model) -> Iterator[None]:
    """Replaces the weights with their moving average until the block ends; does nothing if there is none yet.

    Keras's `SwapEMAWeights` swaps by adding and subtracting, whose rounding would let validation change training. This
    one copies.

    Args:
        model: a compiled model.
    """
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    # Before the first step, Keras's average is 0.
    if not getattr(optimizer, "use_ema", False) or not optimizer.iterations.numpy():
        yield
        return
    weights = [np.array(variable.numpy()) for variable in model.trainable_variables]
    model.optimizer.finalize_variable_values(model.trainable_variables)
    for variable in model.trainable_variables:
        # On JAX, average and weight now share one array, whose memory validation would donate.
        variable.assign(np.array(variable.numpy()))
    try:
        yield
    finally:
        for variable, value in zip(model.trainable_variables, weights, strict=True):
            variable.assign(value)

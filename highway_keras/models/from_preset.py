"""Nets by name."""

import difflib
from collections.abc import Callable
from typing import Any

import keras

from highway_keras.models.conv import conv
from highway_keras.models.dense import dense
from highway_keras.models.factor import factor
from highway_keras.models.presets import PRESETS

FACTORIES: dict[str, Callable[..., keras.Model]] = {"dense": dense, "conv": conv, "factor": factor}


def presets() -> tuple[str, ...]:
    """The names that `from_preset` knows.

    Returns:
        Each net followed by its plain and its residual twin.

    Example:
        presets()[:3]  # ('mnist_conv_16', 'mnist_conv_16_plain', 'mnist_conv_16_residual')
    """
    return tuple(PRESETS)


def from_preset(name: str, **overrides: Any) -> keras.Model:
    """Builds a net of the paper by its name, with fresh weights.

    The global dtype policy and the global seed apply as to any Keras model.

    Args:
        name: one of `presets()`.
        **overrides: what differs from the preset; None keeps the preset's. All nets take `input_shape`, `outputs`,
            `width` (units, or filters of the first stage with the others in proportion; of the highway net, for twins
            too), `activation` and `dropout`. Dense nets take `depth`, and but for the factor
            model `initializer`, "glorot_uniform" or "fan_in_uniform". Highway nets take `transform_bias`, a number or
            "auto". Twins take `match`, "width" or "parameters".

    Returns:
        A functional model from "image" ("features" for the factor model), float32 and already preprocessed, to logits
        in float32.

    Raises:
        ValueError: if there is no such preset, or it does not take one of the overrides, or a value is out of range.

    Example:
        model = highway_keras.from_preset("mnist_conv_32")
        model = highway_keras.from_preset("mnist_dense_50_plain", depth=20, match="parameters")

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, Tables 1 to 3 and sections 3.1 and 4.
    """
    if name not in PRESETS:
        close = difflib.get_close_matches(str(name), PRESETS, n=1, cutoff=0.4)
        hint = f"Did you mean '{close[0]}'? " if close else ""
        raise ValueError(f"There is no such preset. {hint}Choices: {', '.join(PRESETS)}. Received: name={name!r}")
    preset = PRESETS[name]
    wanted = {argument: value for argument, value in overrides.items() if value is not None}
    allowed = ["input_shape", "outputs", "width", "activation", "dropout"]
    allowed += [] if preset.factory == "conv" else ["depth"]
    allowed += ["initializer"] if preset.factory == "dense" else []
    allowed += ["transform_bias"] if preset.arguments["kind"] == "highway" else ["match"]
    for argument, value in wanted.items():
        if argument not in allowed:
            raise ValueError(f"'{name}' can override {', '.join(allowed)}. Received: {argument}={value!r}")
    return FACTORIES[preset.factory](**{**preset.arguments, **wanted}, name=name)

"""Small dense highway nets for vectors: the factor model, and the net for tables."""

from typing import Literal

import keras

from highway_keras.models.blocks import Kind, Match
from highway_keras.models.dense import dense


def factor(
    input_shape: tuple[int, ...] = (5,),
    outputs: int = 1,
    *,
    depth: int = 5,
    width: int = 128,
    kind: Kind = "highway",
    match: Match = "width",
    activation: str = "relu",
    transform_bias: float | Literal["auto"] = -1.0,
    dropout: float = 0.0,
    name: str | None = None,
) -> keras.Model:
    """Builds a dense highway net for vectors, such as factors or the encoded rows of a table.

    Args:
        input_shape: length of the vectors, as `(factors,)`.
        outputs: number of targets, or of classes.
        depth: number of hidden layers: one plain layer and `depth - 1` blocks.
        width: units per layer.
        kind: "highway", "plain" or "residual".
        match: quantity that a twin shares with the highway net: "width", or "parameters" per hidden layer.
        activation: activation of the first layer and of H.
        transform_bias: initial bias of the transform gates; "auto" derives it from the depth.
        dropout: dropout rate before the last layer.
        name: name of the model.

    Returns:
        A functional model from the input "features", `(batch, factors)`, to `(batch, outputs)`.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        model = factor(input_shape=(8,))
    """
    return dense(
        input_shape,
        outputs,
        depth,
        width,
        kind=kind,
        match=match,
        activation=activation,
        transform_bias=transform_bias,
        dropout=dropout,
        input_name="features",
        name=name,
    )

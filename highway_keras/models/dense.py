"""Dense nets of any depth and width: one plain layer that sets the width, then blocks that keep it."""

from typing import Literal

import keras

from highway_keras.initializers import fan_in_uniform
from highway_keras.layers import HighwayStack, auto_transform_bias
from highway_keras.layers.recording import layer_names
from highway_keras.models import checks
from highway_keras.models.blocks import KINDS, Kind, block, plain
from highway_keras.models.resize import MODES, Mode, Resize
from highway_keras.models.twins import MATCHES, dense_width

# The twins are built layer by layer. Keras walks them by recursion, two levels a residual block; Python gives up at
# 1 000 levels.
DEEPEST_TWIN = 400

Initial = Literal["glorot_uniform", "fan_in_uniform"]
INITIAL = ("glorot_uniform", "fan_in_uniform")


def dense(
    input_shape: tuple[int, ...],
    outputs: int,
    depth: int,
    width: int,
    *,
    kind: Kind = "highway",
    match: Literal["width", "parameters"] = "width",
    activation: str = "tanh",
    transform_bias: float | Literal["auto"] = -2.0,
    initializer: Initial = "glorot_uniform",
    resize: Literal["plain"] | Mode = "plain",
    dropout: float = 0.0,
    rematerialize: bool = False,
    input_name: str = "image",
    name: str | None = None,
) -> keras.Model:
    """A dense highway net of any depth, or its plain or residual twin.

    The first hidden layer is plain and turns the input into `width` units; `depth - 1` blocks follow, those of a
    highway net as one `HighwayStack` named "highway". With another `resize` the input itself is padded or sub-sampled
    to `width` units, and all hidden layers are blocks. All kernels start by the same rule: "normalised initialisation"
    (Glorot uniform) unless another is asked for. The output is logits in float32 under every dtype policy.

    Args:
        input_shape: of one example without the batch; flattened inside.
        outputs: units of the last layer.
        depth: hidden layers; of a twin at most 400.
        width: units a layer; of the highway net, where `match` makes its twin wider.
        kind: "highway", "plain" (H alone) or "residual" (x + H).
        match: what a twin shares with the highway net: the width, or the parameters of a hidden layer.
        activation: of the first layer and of H.
        transform_bias: initial bias of the transform gates; "auto" takes it from the depth.
        initializer: of all kernels, "glorot_uniform" or "fan_in_uniform" (`highway_keras.initializers`).
        resize: "plain", or "zero_pad" or "subsample" to reach `width` without weights.
        dropout: share of the units dropped before the last layer, while training.
        rematerialize: whether to compute blocks a second time in training to save memory; see `HighwayStack`.
        input_name: of the input.
        name: of the model.

    Returns:
        A functional model from `(batch, *input_shape)` to `(batch, outputs)`.

    Raises:
        ValueError: if an argument is out of its range.

    Example:
        model = dense((28, 28, 1), outputs=10, depth=50, width=50, transform_bias=-2.0)

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, sections 3.1 and 4.
    """
    checks.choice("kind", kind, KINDS)
    checks.choice("match", match, MATCHES)
    checks.choice("resize", resize, MODES)
    checks.choice("initializer", initializer, INITIAL)
    for argument, value in (("outputs", outputs), ("depth", depth), ("width", width)):
        checks.positive(argument, value)
    if depth > DEEPEST_TWIN and kind != "highway":
        raise ValueError(f"A {kind} net has at most {DEEPEST_TWIN} layers. Received: depth={depth}")
    blocks = depth - 1 if resize == "plain" else depth
    units = dense_width(width) if match == "parameters" and kind != "highway" and blocks else width

    inputs = x = keras.Input(checks.shape(input_shape), name=input_name, dtype="float32")
    if len(input_shape) > 1:
        x = keras.layers.Flatten(data_format="channels_last", name="flatten")(x)
    if resize == "plain":
        x = plain(x, units, name="entry", activation=activation, initializer=_initial(initializer))
    else:
        x = Resize(units, mode=resize, name="entry")(x)
    if kind == "highway" and blocks:
        x = HighwayStack(
            blocks,
            rematerialize=rematerialize,
            activation=activation,
            transform_bias=auto_transform_bias(depth) if transform_bias == "auto" else transform_bias,
            kernel_initializer=_initial(initializer),
            transform_initializer=_initial(initializer),
            name=kind,
        )(x)
    else:
        for layer in layer_names(kind, blocks):
            x = block(kind, x, name=layer, activation=activation, initializer=_initial(initializer))
    if dropout:
        x = keras.layers.Dropout(dropout, name="dropout")(x)
    logits = keras.layers.Dense(outputs, kernel_initializer=_initial(initializer), dtype="float32", name="logits")
    return keras.Model(inputs, logits(x), name=name)


def _initial(initializer: Initial) -> keras.initializers.Initializer | str:
    # A new one at each call: two kernels with the same instance would start with the same values.
    return fan_in_uniform() if initializer == "fan_in_uniform" else initializer

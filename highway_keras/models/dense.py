"""Dense nets of any depth and width: one plain layer sets the width, and the blocks keep it."""

from typing import Literal

import keras

from highway_keras.initializers import fan_in_uniform
from highway_keras.layers import HighwayStack, auto_transform_bias
from highway_keras.layers.recording import layer_names
from highway_keras.models import checks
from highway_keras.models.blocks import KINDS, MATCHES, Kind, Match, block, plain
from highway_keras.models.resize import MODES, Mode, Resize

# Twins are built layer by layer. Keras traverses them recursively, two levels per residual block, and Python's
# recursion limit is 1,000 levels.
DEEPEST_TWIN = 400

InitializerName = Literal["glorot_uniform", "fan_in_uniform"]
INITIALIZERS = ("glorot_uniform", "fan_in_uniform")


def dense(
    input_shape: tuple[int, ...],
    outputs: int,
    depth: int,
    width: int,
    *,
    kind: Kind = "highway",
    match: Match = "width",
    activation: str = "tanh",
    transform_bias: float | Literal["auto"] = -2.0,
    initializer: InitializerName = "glorot_uniform",
    resize: Literal["plain"] | Mode = "plain",
    dropout: float = 0.0,
    rematerialize: bool = False,
    input_name: str = "image",
    name: str | None = None,
) -> keras.Model:
    """Builds a dense highway net of any depth, or its plain or residual twin.

    The first hidden layer is plain and maps the input to `width` units; `depth - 1` blocks follow, in a highway net as
    one `HighwayStack` named "highway". With another `resize` the input itself is padded or sub-sampled to `width`
    units, and all hidden layers are blocks. All kernels use the same initializer, by default "normalized
    initialization" (Glorot uniform). The outputs are logits in float32 under every dtype policy.

    Args:
        input_shape: shape of one example without the batch axis; flattened inside.
        outputs: units of the last layer.
        depth: number of hidden layers; at most 400 for a twin.
        width: units per layer of the highway net; its twin may be wider, see `match`.
        kind: "highway", "plain" (H alone) or "residual" (x + H).
        match: quantity that a twin shares with the highway net: "width", or "parameters" per hidden layer.
        activation: activation of the first layer and of H.
        transform_bias: initial bias of the transform gates; "auto" derives it from the depth.
        initializer: initializer of all kernels, "glorot_uniform" or "fan_in_uniform" (`highway_keras.initializers`).
        resize: "plain", or "zero_pad" or "subsample" to reach `width` without weights.
        dropout: dropout rate before the last layer.
        rematerialize: whether training recomputes blocks to save memory; see `HighwayStack`.
        input_name: name of the input.
        name: name of the model.

    Returns:
        A functional model from `(batch, *input_shape)` to `(batch, outputs)`.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        model = dense((28, 28, 1), outputs=10, depth=50, width=50, transform_bias=-2.0)

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, sections 3.1 and 4.
    """
    checks.choice("kind", kind, KINDS)
    checks.choice("match", match, MATCHES)
    checks.choice("resize", resize, MODES)
    checks.choice("initializer", initializer, INITIALIZERS)
    for argument, value in (("outputs", outputs), ("depth", depth), ("width", width)):
        checks.positive(argument, value)
    if depth > DEEPEST_TWIN and kind != "highway":
        raise ValueError(f"A {kind} net has at most {DEEPEST_TWIN} layers. Received: depth={depth}")
    blocks = depth - 1 if resize == "plain" else depth
    units = matched_width(width) if match == "parameters" and kind != "highway" and blocks else width

    inputs = x = keras.Input(checks.shape(input_shape), name=input_name, dtype="float32")
    if len(input_shape) > 1:
        x = keras.layers.Flatten(data_format="channels_last", name="flatten")(x)
    if resize == "plain":
        x = plain(x, units, name="entry", activation=activation, initializer=_new_initializer(initializer))
    else:
        x = Resize(units, mode=resize, name="entry")(x)
    if kind == "highway" and blocks:
        x = HighwayStack(
            blocks,
            rematerialize=rematerialize,
            activation=activation,
            transform_bias=auto_transform_bias(depth) if transform_bias == "auto" else transform_bias,
            kernel_initializer=_new_initializer(initializer),
            transform_initializer=_new_initializer(initializer),
            name=kind,
        )(x)
    else:
        for layer in layer_names(kind, blocks):
            x = block(kind, x, name=layer, activation=activation, initializer=_new_initializer(initializer))
    if dropout:
        x = keras.layers.Dropout(dropout, name="dropout")(x)
    logits = keras.layers.Dense(
        outputs, kernel_initializer=_new_initializer(initializer), dtype="float32", name="logits"
    )
    return keras.Model(inputs, logits(x), name=name)


def matched_width(width: int) -> int:
    """Returns the width of a plain layer that comes closest to the parameters of a highway layer of `width` units.

    Counts parameters per hidden layer as the paper does, so the result depends on neither depth nor input size. A
    highway layer has two maps and a plain or residual one has one, so the twin is wider by about the square root of
    two.

    Args:
        width: units of a highway layer.

    Returns:
        Units of a plain layer.

    Example:
        matched_width(50)  # 71: 5,112 parameters per layer against 5,100

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, section 3.1.
    """
    target = 2 * width * (width + 1)
    return min(range(width, 2 * width + 1), key=lambda units: abs(units * (units + 1) - target))


def _new_initializer(initializer: InitializerName) -> keras.initializers.Initializer | str:
    # A new instance at each call: a shared one would give two kernels the same values.
    return fan_in_uniform() if initializer == "fan_in_uniform" else initializer

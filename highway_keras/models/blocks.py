"""The repeated block of a net: a highway, plain or residual layer with the same H."""

from typing import Any, Literal

import keras

from highway_keras.layers import ConvHighway, Highway
from highway_keras.layers.normalization import FusedBatchNormalization
from highway_keras.models import checks

Kind = Literal["highway", "plain", "residual"]
Match = Literal["width", "parameters"]
KINDS = ("highway", "plain", "residual")
MATCHES = ("width", "parameters")
NORMALIZATION_MOMENTUM = 0.9
"""Running statistics follow within tens of steps, so that short runs can be validated; Keras's 0.99 takes hundreds."""


def block(
    kind: Kind,
    x: Any,
    *,
    name: str,
    kernel_size: int | None = None,
    activation: str = "relu",
    transform_bias: float | Literal["auto"] = -1.0,
    depth: int | None = None,
    initializer: keras.initializers.Initializer | str = "glorot_uniform",
    l2: float = 0.0,
    batch_normalization: bool = False,
) -> Any:
    """Applies a layer that keeps the size of x: T * H(x) + (1 - T) * x, H(x), or x + H(x).

    Args:
        kind: "highway", "plain" or "residual".
        x: symbolic tensor `(batch, features)`, or `(batch, height, width, channels)` with a `kernel_size`.
        name: name of the block's last layer.
        kernel_size: kernel size in pixels; None makes H dense.
        activation: activation of H.
        transform_bias: initial bias of the transform gate; "auto" derives it from `depth`. Highway only.
        depth: number of layers of the whole net. Highway only.
        initializer: initializer of the kernels of H and the gate, which get distinct values.
        l2: factor of the L2 penalty on the kernels of H and the gate.
        batch_normalization: whether H is normalized before its activation; the gate never is.

    Returns:
        A symbolic tensor of the shape of x.

    Raises:
        ValueError: if `kind` is unknown.

    Example:
        x = block("highway", x, name="highway_01", kernel_size=3, transform_bias=-2.0)

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, equation 3. A residual block is a highway block with
        both gates open, T = 1 and C = 1.
    """
    checks.choice("kind", kind, KINDS)
    if kind == "highway":
        form: dict[str, Any] = {"kernel_size": kernel_size, "data_format": "channels_last"} if kernel_size else {}
        layer = ConvHighway if kernel_size else Highway
        return layer(
            **form,
            activation=activation,
            transform_bias=transform_bias,
            depth=depth,
            kernel_initializer=_fresh(initializer),
            transform_initializer=_fresh(initializer),
            kernel_regularizer=_penalty(l2),
            transform_regularizer=_penalty(l2),
            batch_normalization=batch_normalization,
            normalization_momentum=NORMALIZATION_MOMENTUM,
            name=name,
        )(x)
    h = plain(
        x,
        x.shape[-1],
        name=name if kind == "plain" else f"{name}_h",
        kernel_size=kernel_size,
        activation=activation,
        initializer=initializer,
        l2=l2,
        batch_normalization=batch_normalization,
    )
    return h if kind == "plain" else keras.layers.Add(name=name)([x, h])


def plain(
    x: Any,
    units: int,
    *,
    name: str,
    kernel_size: int | None = None,
    padding: str = "same",
    activation: str = "relu",
    initializer: keras.initializers.Initializer | str = "glorot_uniform",
    l2: float = 0.0,
    batch_normalization: bool = False,
) -> Any:
    """Applies a dense or convolutional layer without a gate: the entry of a stage, or H alone.

    Args:
        x: symbolic tensor `(batch, features)`, or `(batch, height, width, channels)` with a `kernel_size`.
        units: units or filters.
        name: name of the layer.
        kernel_size: kernel size in pixels; None makes a dense layer.
        padding: padding of the convolution, "same" or "valid".
        activation: activation.
        initializer: initializer of the kernel.
        l2: factor of the L2 penalty on the kernel.
        batch_normalization: whether to normalize before the activation, in place of a bias. The layers are then called
            NAME_kernel, NAME_normalization and NAME.

    Returns:
        A symbolic tensor with `units` features.

    Example:
        x = plain(x, 32, name="entry_1", kernel_size=5, padding="valid")
    """
    common = {
        "activation": None if batch_normalization else activation,
        "use_bias": not batch_normalization,
        "kernel_initializer": _fresh(initializer),
        "kernel_regularizer": _penalty(l2),
        "name": f"{name}_kernel" if batch_normalization else name,
    }
    if kernel_size is None:
        x = keras.layers.Dense(units, **common)(x)
    else:
        x = keras.layers.Conv2D(units, kernel_size, padding=padding, data_format="channels_last", **common)(x)
    if not batch_normalization:
        return x
    x = FusedBatchNormalization(momentum=NORMALIZATION_MOMENTUM, name=f"{name}_normalization")(x)
    return keras.layers.Activation(activation, name=name)(x)


def _fresh(initializer: keras.initializers.Initializer | str) -> keras.initializers.Initializer:
    # An instance draws the same values on every call, so a gate sharing it with H would start as a copy of H.
    return keras.initializers.get(initializer).clone()


def _penalty(l2: float) -> keras.regularizers.Regularizer | None:
    return keras.regularizers.L2(l2) if l2 else None

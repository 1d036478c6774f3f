"""The block that is repeated along depth, as highway, plain or residual layer with the same H."""

from typing import Any, Literal

import keras

from highway_keras.layers import ConvHighway, Highway
from highway_keras.models import checks

Kind = Literal["highway", "plain", "residual"]
KINDS = ("highway", "plain", "residual")


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
) -> Any:
    """One layer that keeps the size of x: T * H(x) + (1 - T) * x, or H(x), or x + H(x).

    Args:
        kind: "highway", "plain" or "residual".
        x: symbolic tensor `(batch, features)`, or `(batch, height, width, channels)` with a `kernel_size`.
        name: of the layer whose output is the block's.
        kernel_size: side of the convolution in pixels; None makes H a dense map.
        activation: of H.
        transform_bias: initial bias of the transform gate; "auto" takes it from `depth`. Highway only.
        depth: layers of the whole net. Highway only.
        initializer: of the kernels of H and of the gate; each gets values of its own.
        l2: factor of the L2 penalty on the kernels of H and of the gate.

    Returns:
        A symbolic tensor of the shape of x.

    Raises:
        ValueError: if the kind is none of the three.

    Example:
        x = block("highway", x, name="highway_01", kernel_size=3, transform_bias=-2.0)

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, equation 3. The residual form is a highway block
        whose gates are both open (T = 1 and C = 1), not one with T = 1 alone.
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
) -> Any:
    """A dense or convolutional layer without a gate: the entry of a stage, or H alone.

    Args:
        x: symbolic tensor `(batch, features)`, or `(batch, height, width, channels)` with a `kernel_size`.
        units: units or filters.
        name: of the layer.
        kernel_size: side of the convolution in pixels; None makes it a dense layer.
        padding: of the convolution, "same" or "valid".
        activation: of the output.
        initializer: of the kernel.
        l2: factor of the L2 penalty on the kernel.

    Returns:
        A symbolic tensor with `units` features.

    Example:
        x = plain(x, 32, name="entry_1", kernel_size=5, padding="valid")
    """
    common = {
        "activation": activation,
        "kernel_initializer": _fresh(initializer),
        "kernel_regularizer": _penalty(l2),
        "name": name,
    }
    if kernel_size is None:
        return keras.layers.Dense(units, **common)(x)
    return keras.layers.Conv2D(units, kernel_size, padding=padding, data_format="channels_last", **common)(x)


def _fresh(initializer: keras.initializers.Initializer | str) -> keras.initializers.Initializer:
    # One instance gives the same values on every call: a gate that shared it with H would start as a copy of H.
    return keras.initializers.get(initializer).clone()


def _penalty(l2: float) -> keras.regularizers.Regularizer | None:
    return keras.regularizers.L2(l2) if l2 else None

"""Convolutional nets built from stages: all nets of the paper's Tables 1 to 3."""

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import keras

from highway_keras.initializers import caffe_xavier, gaussian
from highway_keras.models import checks
from highway_keras.models.blocks import KINDS, MATCHES, Kind, Match, block, plain
from highway_keras.models.resize import MODES, Mode, Resize
from highway_keras.models.stages import Stage, layers, matched, parameters, scaled, with_dropout, with_resize


def conv(
    input_shape: tuple[int, int, int],
    outputs: int,
    stages: Sequence[Stage],
    *,
    kind: Kind = "highway",
    match: Match = "width",
    width: int | None = None,
    activation: str = "relu",
    transform_bias: float | Literal["auto"] = -1.0,
    resize: Literal["plain"] | Mode = "plain",
    input_dropout: float = 0.0,
    dropout: float | None = None,
    hidden: int | None = None,
    first_std: float | None = None,
    classifier_std: float | None = None,
    l2: float = 0.0,
    classifier_l2: float = 0.0,
    batch_normalization: bool = False,
    name: str | None = None,
) -> keras.Model:
    """Builds a convolutional highway net, or its plain or residual twin.

    Kernels are initialized as in the authors' Caffe code (`initializers.caffe_xavier`) unless a standard deviation is
    given. The outputs are logits in float32 under every dtype policy.

    Args:
        input_shape: height, width, channels.
        outputs: number of classes.
        stages: see `Stage`; the last stage is flattened unless it has "average" pooling.
        kind: "highway", "plain" (H alone) or "residual" (x + H).
        match: quantity that a twin shares with the highway net: "width" for the filters, or "parameters" for the total
            number of parameters, reached by scaling the filters of all stages.
        width: filters of the first stage, the others in proportion; None keeps those of `stages`.
        activation: activation of all convolutions and the hidden layer.
        transform_bias: initial bias of the transform gates; "auto" derives it from the number of layers.
        resize: how a stage with an entry convolution changes the number of channels: by that convolution ("plain"), or
            by "zero_pad" or "subsample", in which case the entry becomes one more block.
        input_dropout: dropout rate of the input pixels.
        dropout: overrides all non-zero rates of `input_dropout` and `stages`; None keeps them.
        hidden: units of a fully connected layer before the classifier; None for none.
        first_std: standard deviation of the first kernel.
        classifier_std: standard deviation of the classifier's kernel.
        l2: factor of the L2 penalty on all kernels except the classifier's.
        classifier_l2: factor of the L2 penalty on the classifier's kernel.
        batch_normalization: whether entries, the hidden layer and H of each block are normalized before their
            activation.
        name: name of the model.

    Returns:
        A functional model from "image", `(batch, height, width, channels)`, to `(batch, outputs)`.

    Raises:
        ValueError: if an argument is out of range, or `resize` cannot reach the number of channels of a stage.

    Example:
        stages = (Stage(16, blocks=(3, 3), pool=(2, 2)), Stage(32, blocks=(3, 3), pool="average"))
        model = conv((32, 32, 3), outputs=10, stages=stages)

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, sections 2.1, 3.2 and 3.3.
    """
    checks.choice("kind", kind, KINDS)
    checks.choice("match", match, MATCHES)
    checks.choice("resize", resize, MODES)
    checks.positive("outputs", outputs)
    shape = checks.shape(input_shape, rank=3)
    stages = _adapted(stages, width, dropout, resize)
    if dropout is not None and input_dropout:
        input_dropout = dropout
    if match == "parameters" and kind != "highway":

        def count(twin: Sequence[Stage], kind: Kind) -> int:
            return parameters(twin, shape, outputs, hidden, kind, batch_normalization=batch_normalization)

        highway = count(stages, "highway")
        stages = matched(stages, highway, lambda twin: count(twin, kind))

    shared: dict[str, Any] = {"activation": activation, "l2": l2, "batch_normalization": batch_normalization}
    gated = {"transform_bias": transform_bias, "depth": layers(stages, hidden), **shared}
    inputs = keras.Input(shape, name="image", dtype="float32")
    x = _dropout(inputs, input_dropout, "dropout_0")
    numbers = itertools.count(1)
    for index, stage in enumerate(stages, start=1):
        if stage.entry:
            initializer = gaussian(first_std) if index == 1 else caffe_xavier()
            entry = {"kernel_size": stage.entry, "padding": stage.padding, "initializer": initializer, **shared}
            x = plain(x, stage.filters, name=f"entry_{index}", **entry)
        else:
            x = _resized(x, stage.filters, resize, name=f"resize_{index}")
        for side in stage.blocks:
            name_of_block = f"{kind}_{next(numbers):02}"
            x = block(kind, x, name=name_of_block, kernel_size=side, initializer=caffe_xavier(), **gated)
        x = _dropout(_pooled(x, stage.pool, f"pool_{index}"), stage.dropout, f"dropout_{index}")
    if len(x.shape) > 2:
        x = keras.layers.Flatten(data_format="channels_last", name="flatten")(x)
    if hidden:
        x = plain(x, hidden, name="hidden", initializer=caffe_xavier(), **shared)
    return keras.Model(inputs, _classified(x, outputs, classifier_std, classifier_l2), name=name)


def _adapted(
    stages: Sequence[Stage], width: int | None, dropout: float | None, resize: Literal["plain"] | Mode
) -> Sequence[Stage]:
    if width is not None:
        checks.positive("width", width)
        stages = scaled(stages, width / stages[0].filters)
    if dropout is not None:
        stages = with_dropout(stages, dropout)
    return with_resize(stages, resize)


def _classified(x: Any, outputs: int, std: float | None, l2: float) -> Any:
    classifier = keras.layers.Dense(
        outputs,
        kernel_initializer=gaussian(std),
        kernel_regularizer=keras.regularizers.L2(l2) if l2 else None,
        dtype="float32",
        name="logits",
    )
    return classifier(x)


def _resized(x: Any, filters: int, mode: Literal["plain"] | Mode, name: str) -> Any:
    if x.shape[-1] == filters:
        return x
    if mode == "plain":
        raise ValueError(
            "A stage without an entry convolution keeps the number of channels; add one, or resize by 'zero_pad' "
            f"or 'subsample'. Received: input shape {tuple(x.shape)}, output shape {(*x.shape[:-1], filters)}"
        )
    return Resize(filters, mode=mode, name=name)(x)


def _pooled(x: Any, pool: tuple[int, int] | Literal["average"] | None, name: str) -> Any:
    if pool is None:
        return x
    if pool == "average":
        return keras.layers.GlobalAveragePooling2D(data_format="channels_last", name=name)(x)
    size, stride = pool
    # Like Caffe, "same" padding rounds output sizes up.
    return keras.layers.MaxPooling2D(size, stride, padding="same", data_format="channels_last", name=name)(x)


def _dropout(x: Any, rate: float, name: str) -> Any:
    return keras.layers.Dropout(rate, name=name)(x) if rate else x

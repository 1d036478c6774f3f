"""Stages of convolutional nets as data, and arithmetic on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from highway_keras.models.blocks import Kind
from highway_keras.models.resize import Mode


@dataclass(frozen=True)
class Stage:
    """A part of a convolutional net with a constant number of channels.

    Layers come in the order of the fields: entry, blocks, pooling, dropout.

    Args:
        filters: channels of all layers.
        entry: kernel size of the plain convolution at the start, in pixels; None for none.
        padding: padding of the entry, "same" or "valid".
        blocks: kernel size of each highway, plain or residual block, in pixels.
        pool: size and stride of max pooling in pixels, with output sizes rounded up; "average" for global average
            pooling; None for none.
        dropout: dropout rate after pooling.

    Example:
        Stage(32, blocks=(3, 3), pool=(2, 2), dropout=0.2)
    """

    filters: int
    entry: int | None = 3
    padding: Literal["same", "valid"] = "same"
    blocks: tuple[int, ...] = ()
    pool: tuple[int, int] | Literal["average"] | None = None
    dropout: float = 0.0


def scaled(stages: Sequence[Stage], factor: float) -> tuple[Stage, ...]:
    """Scales the filters of all stages, rounded, to at least 1.

    Args:
        stages: stages of a net.
        factor: factor on the filters.

    Returns:
        New stages.

    Example:
        scaled((Stage(16), Stage(32)), 1.5)  # 24 and 48 filters
    """
    return tuple(replace(stage, filters=max(1, round(stage.filters * factor))) for stage in stages)


def with_dropout(stages: Sequence[Stage], rate: float) -> tuple[Stage, ...]:
    """Replaces the dropout rate of the stages that have dropout."""
    return tuple(replace(stage, dropout=rate) if stage.dropout else stage for stage in stages)


def with_resize(stages: Sequence[Stage], mode: Mode | Literal["plain"]) -> tuple[Stage, ...]:
    """Adapts the entries of stages to the way the number of channels changes.

    A plain entry changes the number itself. Zero-padding and sub-sampling have no weights, so the entry's convolution
    becomes one more block, which keeps the depth. Entries with another purpose stay: the first stage's, those with
    "valid" padding, and those of stages without blocks.

    Args:
        stages: stages of a net.
        mode: "plain", "zero_pad" or "subsample".

    Returns:
        New stages.
    """
    if mode == "plain":
        return tuple(stages)
    changed = list(stages[:1])
    for before, stage in pairwise(stages):
        only_resizes = stage.padding == "same" and stage.blocks and stage.filters != before.filters
        if stage.entry and only_resizes:
            changed.append(replace(stage, entry=None, blocks=(stage.entry, *stage.blocks)))
        else:
            changed.append(stage)
    return tuple(changed)


def layers(stages: Sequence[Stage], hidden: int | None) -> int:
    """Counts the layers with weights, including the classifier: the depth in the paper's sense."""
    return sum(bool(stage.entry) + len(stage.blocks) for stage in stages) + bool(hidden) + 1


def parameters(
    stages: Sequence[Stage],
    input_shape: tuple[int, ...],
    outputs: int,
    hidden: int | None,
    kind: Kind,
    *,
    batch_normalization: bool = False,
) -> int:
    """Counts the trainable parameters of a convolutional net without building it.

    Args:
        stages: stages as built, after `with_resize`.
        input_shape: height, width, channels.
        outputs: units of the classifier.
        hidden: units of the fully connected layer before it, if any.
        kind: kind of the blocks.
        batch_normalization: whether all but gates and classifier have a gain and an offset in place of a bias.

    Returns:
        The number of parameters.

    Example:
        parameters((Stage(4, pool="average"),), (8, 8, 1), outputs=2, hidden=None, kind="plain")  # 40 + 10
    """
    height, width, channels = input_shape
    gain = int(batch_normalization)
    count = 0
    for stage in stages:
        if stage.entry:
            count += (stage.entry**2 * channels + 1 + gain) * stage.filters
            if stage.padding == "valid":
                height, width = height - stage.entry + 1, width - stage.entry + 1
        channels = stage.filters
        maps = 2 if kind == "highway" else 1
        count += sum((maps * (side**2 * channels + 1) + gain) * channels for side in stage.blocks)
        if stage.pool == "average":
            height = width = 1
        elif stage.pool:
            height, width = -(-height // stage.pool[1]), -(-width // stage.pool[1])
    features = height * width * channels
    if hidden:
        count += (features + 1 + gain) * hidden
        features = hidden
    return count + (features + 1) * outputs


def matched(stages: Sequence[Stage], target: int, count: Callable[[Sequence[Stage]], int]) -> tuple[Stage, ...]:
    """Scales all filters by one factor to come closest to a number of parameters.

    Args:
        stages: stages of the highway net.
        target: parameters of the highway net.
        count: counts the parameters of a twin with given stages.

    Returns:
        The stages of the twin.

    Example:
        matched(stages, 151_690, count)  # 32 filters become 45
    """
    widest = max(stage.filters for stage in stages)
    candidates = (scaled(stages, filters / widest) for filters in range(widest, 2 * widest + 1))
    return min(candidates, key=lambda twin: abs(count(twin) - target))

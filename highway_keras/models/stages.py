"""Convolutional nets as data: stages of equal size, and arithmetic on them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from highway_keras.models.blocks import Kind
from highway_keras.models.resize import Mode


@dataclass(frozen=True)
class Stage:
    """A part of a convolutional net that keeps its number of channels.

    Its layers come in the order of its fields: entry, blocks, pooling, dropout.

    Args:
        filters: channels of all its layers.
        entry: side of the plain convolution that leads into it, in pixels; None has none.
        padding: of the entry, "same" or "valid".
        blocks: side of the convolution of each highway, plain or residual block, in pixels.
        pool: size and stride of max pooling, in pixels, rounded up; "average" takes the mean over the whole image,
            whatever its size; None has none.
        dropout: share of the units dropped after pooling, while training.

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
    """The stages with all filters times `factor`, rounded, at least 1.

    Args:
        stages: of any number.
        factor: on the filters.

    Returns:
        New stages.

    Example:
        scaled((Stage(16), Stage(32)), 1.5)  # 24 and 48 filters
    """
    return tuple(replace(stage, filters=max(1, round(stage.filters * factor))) for stage in stages)


def with_dropout(stages: Sequence[Stage], share: float) -> tuple[Stage, ...]:
    """The stages with another dropout, where they have any."""
    return tuple(replace(stage, dropout=share) if stage.dropout else stage for stage in stages)


def with_resize(stages: Sequence[Stage], mode: Mode | Literal["plain"]) -> tuple[Stage, ...]:
    """The stages with their entries as the mode of the size changes has them.

    A plain entry changes the size by itself. Zero-padding and sub-sampling change it without weights, so the entry's
    convolution becomes a block like the others and the depth stays. Entries that do more stay as they are: that of
    the first stage, which turns pixels into channels, one without padding, and one that has no blocks behind it.

    Args:
        stages: of any number.
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
    """Layers with weights, the classifier included: what the paper calls the depth of a convolutional net."""
    return sum(bool(stage.entry) + len(stage.blocks) for stage in stages) + bool(hidden) + 1


def parameters(
    stages: Sequence[Stage], input_shape: tuple[int, ...], outputs: int, hidden: int | None, kind: Kind
) -> int:
    """Counts the parameters of a convolutional net without building it, for the search of a twin's width.

    Args:
        stages: as built, after `with_resize`.
        input_shape: height, width, channels.
        outputs: units of the classifier.
        hidden: units of the fully connected layer before it, if any.
        kind: of the blocks.

    Returns:
        The number of parameters.

    Example:
        parameters((Stage(4, pool="average"),), (8, 8, 1), outputs=2, hidden=None, kind="plain")  # 40 + 10
    """
    height, width, channels = input_shape
    count = 0
    for stage in stages:
        if stage.entry:
            count += (stage.entry**2 * channels + 1) * stage.filters
            if stage.padding == "valid":
                height, width = height - stage.entry + 1, width - stage.entry + 1
        channels = stage.filters
        maps = 2 if kind == "highway" else 1
        count += sum(maps * (side**2 * channels + 1) * channels for side in stage.blocks)
        if stage.pool == "average":
            height = width = 1
        elif stage.pool:
            height, width = -(-height // stage.pool[1]), -(-width // stage.pool[1])
    features = height * width * channels
    if hidden:
        count += (features + 1) * hidden
        features = hidden
    return count + (features + 1) * outputs

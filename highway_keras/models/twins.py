"""Plain and residual twins of a highway net: as wide, or with as many parameters.

A highway layer has two maps where a plain or residual one has one, so a twin of equal parameters is wider by about
the square root of two. The Add of a residual block has no weights: both twins get the same width.
"""

from collections.abc import Callable, Sequence

from highway_keras.models.stages import Stage, scaled

MATCHES = ("width", "parameters")


def dense_width(width: int) -> int:
    """Width of the plain layers that come closest to the parameters of highway layers of `width` units.

    Counted by hidden layer as the paper does, so it does not depend on the depth nor on the size of the input.

    Args:
        width: units of a highway layer.

    Returns:
        Units of a plain layer.

    Example:
        dense_width(50)  # 71: 5 112 parameters a layer against 5 100

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, section 3.1.
    """
    highway = 2 * width * (width + 1)
    return min(range(width, 2 * width + 1), key=lambda units: abs(units * (units + 1) - highway))


def conv_stages(
    stages: Sequence[Stage], highway: int, parameters: Callable[[Sequence[Stage]], int]
) -> tuple[Stage, ...]:
    """The stages of a twin: all filters times one factor, so that the whole net comes closest in parameters.

    Args:
        stages: those of the highway net.
        highway: parameters of the highway net.
        parameters: counts the parameters of the twin with given stages.

    Returns:
        The stages of the twin.

    Example:
        conv_stages(stages, 151_690, count)  # 32 filters become 45
    """
    widest = max(stage.filters for stage in stages)
    candidates = (scaled(stages, filters / widest) for filters in range(widest, 2 * widest + 1))
    return min(candidates, key=lambda twin: abs(parameters(twin) - highway))

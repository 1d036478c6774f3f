"""Highway, residual and plain nets of equal depth, with equal width or equally many parameters.

All are trained like the nets of `numpy_study`. A block of 71 units without a gate has as many parameters as a
highway block of 50 units (`highway_keras.models`).
"""

from dataclasses import dataclass
from typing import Any

from pipelines.core.config import Config, ModelConfig, Provenance, Subset
from pipelines.core.plotting import BLUE, GREEN, ORANGE
from pipelines.studies.framework.curves import Line
from pipelines.studies.framework.study import MNIST, Arm
from pipelines.studies.shared import numpy_study
from pipelines.studies.shared.numpy_study import RECORDED


@dataclass(frozen=True)
class Contender:
    """A net of the comparison.

    Args:
        title: title in tables and legends.
        model: model configuration without depth.
        colour: line colour.
        style: line style.
    """

    title: str
    model: ModelConfig
    colour: str
    style: str = "-"


def _net(title: str, colour: str, style: str, preset: str, **fields: Any) -> Contender:
    return Contender(title, ModelConfig(preset=preset, initializer="fan_in_uniform", **fields), colour, style)


NETS = {
    "highway": _net("highway (gate bias -2)", BLUE, "-", "mnist_dense_50", transform_bias=numpy_study.BIAS),
    "highway-low": _net("highway (gate bias -4)", BLUE, "--", "mnist_dense_50", transform_bias=-4.0),
    "residual": _net("residual (50 units)", GREEN, "-", "mnist_dense_50_residual", match="width"),
    "residual-wide": _net("residual (71 units)", GREEN, "--", "mnist_dense_50_residual", match="parameters"),
    "plain": _net("plain (50 units)", ORANGE, "-", "mnist_dense_50_plain", match="width"),
    "plain-wide": _net("plain (71 units)", ORANGE, "--", "mnist_dense_50_plain", match="parameters"),
}


def name(net: str, blocks: int) -> str:
    """The name of an arm, as in `numpy_study`."""
    return f"{net}-{blocks}"


def lines(blocks: int) -> list[Line]:
    """Line styles of the nets of one depth."""
    return [Line(name(key, blocks), net.title, net.colour, net.style) for key, net in NETS.items()]


def arm(net: str, blocks: int, *, whole: bool = False) -> Arm:
    """Builds the arm of a net, trained as in `numpy_study`.

    Args:
        net: one of `NETS`.
        blocks: number of blocks after the projection.
        whole: whether to train on all of MNIST instead of the subset.

    Example:
        arm("residual-wide", 30).config.model.match  # "parameters"
    """
    own = numpy_study.ARMS
    if name(net, blocks) in own and not whole:
        return own[name(net, blocks)]
    config: Config = own[numpy_study.arm("highway", numpy_study.SHOWN)].config
    model = NETS[net].model
    changes: dict[str, Any] = {
        "recipe": name(net, blocks),
        # The projection counts as a layer.
        "model": model.model_copy(update={"depth": blocks + 1}),
        **({"subset": Subset()} if whole else {}),
    }
    ours = ("precision", "model.depth", "model.transform_bias" if model.match is None else "model.match")
    return Arm(
        config=config.model_copy(update=changes),
        provenance=Provenance(
            recorded=tuple(field for field in RECORDED if not (whole and field.startswith("subset."))), assumed=ours
        ),
        data=MNIST if whole else None,
    )

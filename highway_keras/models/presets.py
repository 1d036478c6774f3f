"""The nets of the paper as data: factory, arguments and parameter count of each, and of its twins.

Provenance. Recorded in the authors' own files or printed in the paper: both MNIST nets (width 16 by substitution),
both 19-layer CIFAR nets, depth and width of the dense nets of 10, 50 and 100 layers, gate bias of those of 50.
Count-matched: the FitNet-shaped nets, whose widths, kernels and heads were chosen to meet the parameter counts of
Table 2. Assumed: gate bias of the dense nets of 10, 100 and 1 000 layers, dropout of the FitNet-shaped nets (that of
the 19-layer nets), how the first kernel of fitnet_a and fitnet_b (as theirs) and of fitnet_c (by He's rule) starts,
weight decay on plain convolutions (that of the highway layers), the five factors of the factor model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from highway_keras.models.blocks import KINDS
from highway_keras.models.stages import Stage


@dataclass(frozen=True)
class Preset:
    """A named net.

    Args:
        factory: "dense", "conv" or "factor".
        arguments: of the factory.
        parameters: of the net built from these arguments.
    """

    factory: Literal["dense", "conv", "factor"]
    arguments: Mapping[str, Any]
    parameters: int


DECAY = {"l2": 5e-4, "classifier_l2": 5e-3}
MNIST = {
    "input_shape": (28, 28, 1),
    "outputs": 10,
    "transform_bias": -1.0,
    "input_dropout": 0.2,
    "classifier_std": 0.1,
    **DECAY,
}
CIFAR = {"input_shape": (32, 32, 3), "input_dropout": 0.2, "first_std": 1.0, **DECAY}
CIFAR10 = {**CIFAR, "outputs": 10, "classifier_std": 0.05}
CIFAR100 = {**CIFAR, "outputs": 100, "classifier_std": None}  # He's rule

# Table 1: one plain and eight highway convolutions, and the classifier.
MNIST_STAGES = (
    Stage(32, entry=5, padding="valid", blocks=(3,) * 2, pool=(3, 2), dropout=0.3),
    Stage(32, entry=None, blocks=(3,) * 3, pool=(3, 2), dropout=0.4),
    Stage(32, entry=None, blocks=(3,) * 3, pool=(2, 2), dropout=0.5),
)
# Table 3: three stages, a plain 1x1 convolution and the classifier.
CIFAR_STAGES = (
    Stage(32, blocks=(3,) * 4, pool=(2, 2), dropout=0.2),
    Stage(80, blocks=(3,) * 5, pool=(2, 2), dropout=0.2),
    Stage(128, blocks=(3,) * 5),
    Stage(100, entry=1, pool="average", dropout=0.2),
)
# Sections 3.1 and 4; the gate bias is the net's own.
DENSE = {"input_shape": (28, 28, 1), "outputs": 10, "width": 50, "activation": "tanh"}
# Table 2: 11 layers of about 236 000 parameters; 19 of 2.3 million; 32 of 1.25 million.
A_STAGES = (
    Stage(16, blocks=(3,) * 2, pool=(2, 2), dropout=0.2),
    Stage(32, blocks=(3,) * 2, pool=(2, 2), dropout=0.2),
    Stage(64, blocks=(3,) * 2, pool="average", dropout=0.2),
)
B_STAGES = (*CIFAR_STAGES[:2], replace(CIFAR_STAGES[2], pool="average", dropout=0.2))
C_STAGES = (
    Stage(24, blocks=(1, 3) * 4, pool=(2, 2), dropout=0.2),
    Stage(48, blocks=(1, 3) * 5, pool=(2, 2), dropout=0.2),
    Stage(96, blocks=(1, 3) * 5, pool="average", dropout=0.2),
)


@dataclass(frozen=True)
class Family:
    """A highway net with its two twins, if it has them, which always have equally many parameters.

    Args:
        factory: as in `Preset`.
        arguments: of the highway net.
        match: what the twins share with it; for the dense net the parameters, as in the paper's section 3.1.
        parameters: of the highway net.
        twins: parameters of a twin, by what it shares; none for a net that is too deep to have twins.
    """

    factory: Literal["dense", "conv", "factor"]
    arguments: Mapping[str, Any]
    match: Literal["width", "parameters"]
    parameters: int
    twins: Mapping[str, int]


FAMILIES: dict[str, Family] = {
    "mnist_conv_16": Family(
        factory="conv",
        arguments={**MNIST, "stages": MNIST_STAGES, "width": 16},
        match="width",
        parameters=38_986,
        twins={"width": 20_426, "parameters": 37_586},
    ),
    "mnist_conv_32": Family(
        factory="conv",
        arguments={**MNIST, "stages": MNIST_STAGES},
        match="width",
        parameters=151_690,
        twins={"width": 77_706, "parameters": 151_390},
    ),
    "cifar10_19": Family(
        factory="conv",
        arguments={**CIFAR10, "stages": CIFAR_STAGES, "transform_bias": -2.0},
        match="width",
        parameters=2_256_838,
        twins={"width": 1_193_526, "parameters": 2_254_856},
    ),
    "cifar100_19": Family(
        factory="conv",
        arguments={**CIFAR100, "stages": CIFAR_STAGES, "transform_bias": -2.0},
        match="width",
        parameters=2_265_928,
        twins={"width": 1_202_616, "parameters": 2_267_366},
    ),
    "fitnet_a": Family(
        factory="conv",
        arguments={**CIFAR10, "stages": A_STAGES, "hidden": 250, "transform_bias": -1.0},
        match="width",
        parameters=236_328,
        twins={"width": 139_336, "parameters": 234_829},
    ),
    "fitnet_b": Family(
        factory="conv",
        arguments={**CIFAR10, "stages": B_STAGES, "hidden": 500, "transform_bias": -2.0},
        match="width",
        parameters=2_312_438,
        twins={"width": 1_249_126, "parameters": 2_322_550},
    ),
    "fitnet_c": Family(
        factory="conv",
        # With a first kernel as large as the 19-layer nets' some draws diverge within a few steps (docs/log.md).
        arguments={**CIFAR10, "stages": C_STAGES, "transform_bias": -3.0, "first_std": None},
        match="width",
        parameters=1_254_970,
        twins={"width": 654_298, "parameters": 1_249_131},
    ),
    "mnist_dense_10": Family(
        factory="dense",
        arguments={**DENSE, "depth": 10, "transform_bias": -2.0},
        match="parameters",
        parameters=85_660,
        twins={"width": 62_710, "parameters": 102_463},
    ),
    "mnist_dense_50": Family(
        factory="dense",
        arguments={**DENSE, "depth": 50, "transform_bias": -2.0},
        match="parameters",
        parameters=289_660,
        twins={"width": 164_710, "parameters": 306_943},
    ),
    "mnist_dense_100": Family(
        factory="dense",
        arguments={**DENSE, "depth": 100, "transform_bias": -4.0},
        match="parameters",
        parameters=544_660,
        twins={"width": 292_210, "parameters": 562_543},
    ),
    "cifar100_dense_50": Family(
        factory="dense",
        arguments={**DENSE, "input_shape": (32, 32, 3), "outputs": 100, "depth": 50, "transform_bias": -4.0},
        match="parameters",
        parameters=408_650,
        twins={"width": 283_700, "parameters": 475_871},
    ),
    # Deeper than twins can be built.
    "mnist_dense_1000": Family(
        factory="dense",
        arguments={**DENSE, "depth": 1000, "transform_bias": -10.0},
        match="parameters",
        parameters=5_134_660,
        twins={},
    ),
    "factor": Family(
        factory="factor",
        arguments={"input_shape": (5,), "outputs": 1, "depth": 5, "width": 128, "transform_bias": -1.0},
        match="width",
        parameters=132_993,
        twins={"width": 66_945, "parameters": 133_036},
    ),
}

PRESETS: dict[str, Preset] = {
    name if kind == "highway" else f"{name}_{kind}": Preset(
        family.factory,
        {**family.arguments, "kind": kind, "match": family.match},
        family.parameters if kind == "highway" else family.twins[family.match],
    )
    for name, family in FAMILIES.items()
    for kind in KINDS
    if kind == "highway" or family.twins
}

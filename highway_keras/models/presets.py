"""The nets of the paper, and their modern forms, as data: factory, arguments and parameter counts of nets and twins.

Provenance:

- Recorded in the authors' files or printed in the paper: both MNIST nets (width 16 by substitution), both 19-layer
  CIFAR nets, depth and width of the dense nets with 10, 50 and 100 layers, and the gate bias of those with 50.
- Matched by parameter count: the FitNet-shaped nets, whose widths, kernels and heads were chosen to meet the counts of
  Table 2.
- Assumed: the gate bias of the dense nets with 10, 100 and 1,000 layers; the dropout of the FitNet-shaped nets (as in
  the 19-layer nets); the initialization of the first kernel in fitnet_a and fitnet_b (as in the 19-layer nets) and in
  fitnet_c (He's rule); the weight decay on plain convolutions (as on the highway layers); the five factors of the
  factor model; all of the net for tables, which is ours.

The modern nets have the paper's numbers of parameters, and every block gated unit by unit, with batch normalization
instead of dropout and L2 penalties. That for MNIST has the paper's stages; all other arguments are ours.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import keras

from highway_keras.models import trained_weights
from highway_keras.models.blocks import KINDS, Match
from highway_keras.models.conv import conv
from highway_keras.models.dense import dense
from highway_keras.models.factor import factor
from highway_keras.models.stages import Stage

Factory = Literal["dense", "conv", "factor"]
FACTORIES: dict[Factory, Callable[..., keras.Model]] = {"dense": dense, "conv": conv, "factor": factor}


@dataclass(frozen=True)
class Preset:
    """A named net.

    Args:
        factory: name of the factory.
        arguments: arguments of the factory.
        parameters: number of trainable parameters of the net.
    """

    factory: Factory
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
# As many parameters as in Table 3, in fewer and wider layers. Each change of width comes before the pooling.
WIDE_STAGES = (
    Stage(48, blocks=(3,)),
    Stage(96, pool=(2, 2)),
    Stage(96, entry=None, blocks=(3,) * 2),
    Stage(157, pool=(2, 2)),
    Stage(157, entry=None, blocks=(3,) * 2),
    Stage(176, pool=(2, 2)),
    Stage(176, entry=None, blocks=(3,), pool="average"),
)
# Batch normalization in place of dropout and L2 penalties.
MODERN = {
    "batch_normalization": True,
    "dropout": 0.0,
    "first_std": None,
    "classifier_std": None,
    "l2": 0.0,
    "classifier_l2": 0.0,
}
# Sections 3.1 and 4; the gate bias differs by net.
DENSE = {"input_shape": (28, 28, 1), "outputs": 10, "width": 50, "activation": "tanh"}
# Table 2: 11 layers with about 236,000 parameters, 19 with 2.3 million, 32 with 1.25 million.
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
    """A highway net and its plain and residual twins, which have equal numbers of parameters.

    Args:
        factory: name of the factory.
        arguments: arguments of the highway net.
        match: quantity that the twins share with it; "parameters" for the dense nets, as in section 3.1 of the paper.
        parameters: number of trainable parameters of the highway net.
        twins: number of trainable parameters of a twin by `match`; empty for a net too deep to have twins.
    """

    factory: Factory
    arguments: Mapping[str, Any]
    match: Match
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
    "mnist_conv_32_modern": Family(
        factory="conv",
        arguments={**MNIST, **MODERN, "stages": MNIST_STAGES},
        match="width",
        parameters=151_978,
        twins={"width": 77_994, "parameters": 151_795},
    ),
    "cifar10_modern": Family(
        factory="conv",
        arguments={**CIFAR10, **MODERN, "stages": WIDE_STAGES, "transform_bias": -1.0},
        match="width",
        parameters=2_250_198,
        twins={"width": 1_340_378, "parameters": 2_240_364},
    ),
    "cifar100_modern": Family(
        factory="conv",
        arguments={**CIFAR100, **MODERN, "stages": WIDE_STAGES, "transform_bias": -1.0},
        match="width",
        parameters=2_266_128,
        twins={"width": 1_356_308, "parameters": 2_260_974},
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
        # He's rule; the 19-layer nets' standard deviation of 1 gives far larger gradients at the start.
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
    # Too deep for twins.
    "mnist_dense_1000": Family(
        factory="dense",
        arguments={**DENSE, "depth": 1000, "transform_bias": -10.0},
        match="parameters",
        parameters=5_134_660,
        twins={},
    ),
    "table": Family(
        factory="factor",
        arguments={"input_shape": (10,), "outputs": 1, "depth": 5, "width": 32, "transform_bias": -1.0, "dropout": 0.3},
        match="width",
        parameters=8_833,
        twins={"width": 4_609, "parameters": 8_821},
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


def presets() -> tuple[str, ...]:
    """Lists the presets that `from_preset` builds.

    Returns:
        Their names: each net, followed by its plain and residual twins if it has any.

    Example:
        presets()[:3]  # ('mnist_conv_16', 'mnist_conv_16_plain', 'mnist_conv_16_residual')
    """
    return tuple(PRESETS)


def from_preset(name: str, *, weights: bool = False, **overrides: Any) -> keras.Model:
    """Builds a net of the paper, or a modern form of one, by name.

    The global dtype policy and the global seed apply as to any Keras model.

    Args:
        name: one of `presets()`.
        weights: whether to load the trained weights that come with the package, for one of `pretrained()`; otherwise
            they are new. Only `input_shape`, `dropout` and `outputs` may then be overridden; another number of
            `outputs` gets a new last layer.
        **overrides: arguments that differ from the preset; None keeps the preset's. All nets accept `input_shape`,
            `outputs`, `width` (units, or filters of the first stage with the others in proportion; for twins, those of
            the highway net), `activation` and `dropout`. Convolutional nets accept `batch_normalization`, `stages` (see
            `models.conv`) and `hidden`. Dense nets accept `depth` and, except for those for vectors, `initializer`,
            "glorot_uniform" or "fan_in_uniform". Highway nets accept `transform_bias`, a number or "auto". Twins accept
            `match`, "width" or "parameters".

    Returns:
        A functional model from preprocessed float32 inputs, "image" ("features" for `factor` and `table`), to float32
        logits.

    Raises:
        ValueError: if the preset is unknown, does not accept an override, a value is out of range, or there are no
            trained weights that fit.

    Example:
        model = highway_keras.from_preset("mnist_conv_32")
        model = highway_keras.from_preset("mnist_dense_50_plain", depth=20, match="parameters")
        model = highway_keras.from_preset("mnist_conv_32_modern", weights=True)

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, Tables 1 to 3 and sections 3.1 and 4.
    """
    if not isinstance(weights, bool):
        raise ValueError(
            "weights must be True, for the trained weights of the package, or False. To load a file, call "
            f"`load_weights` of the net. Received: weights={weights!r}"
        )
    if name not in PRESETS:
        known = trained_weights.pretrained() if weights else PRESETS
        close = difflib.get_close_matches(str(name), known, n=1)
        hint = f"Did you mean '{close[0]}'? " if close else ""
        raise ValueError(f"There is no such preset. {hint}Choices: {', '.join(PRESETS)}. Received: name={name!r}")
    preset = PRESETS[name]
    wanted = {argument: value for argument, value in overrides.items() if value is not None}
    allowed = ["input_shape", "outputs", "width", "activation", "dropout"]
    allowed += ["batch_normalization", "stages", "hidden"] if preset.factory == "conv" else ["depth"]
    allowed += ["initializer"] if preset.factory == "dense" else []
    allowed += ["transform_bias"] if preset.arguments["kind"] == "highway" else ["match"]
    for argument, value in wanted.items():
        if argument not in allowed:
            raise ValueError(f"'{name}' accepts the overrides {', '.join(allowed)}. Received: {argument}={value!r}")
        # With another activation or pooling, the same weights would fit and compute something else.
        if weights and argument not in ("input_shape", "outputs", "dropout"):
            raise ValueError(
                "With weights=True, only the overrides input_shape, outputs and dropout are accepted. "
                f"Received: {argument}={value!r}"
            )
    arguments = {**preset.arguments, **wanted}
    if "stages" in wanted:
        # The preset's width would scale them.
        arguments["width"] = wanted.get("width")
    net = FACTORIES[preset.factory](**arguments, name=name)
    if weights:
        trained_weights.load(net, name)
    return net

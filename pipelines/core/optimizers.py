"""The configuration of optimizers and learning-rate schedules: two unions, whose members are distinguished by a tag.

Each member has only the fields that it uses. Imports no framework; `pipelines.training.optimizers` and
`pipelines.training.schedules` build the objects that Keras runs.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from pipelines.core.frozen import Count, Extent, Frozen, NonNegative, Positive, Rate, Share

# Fields of several optimizers, with their help.
LearningRate = Annotated[Positive, Field(description="Initial learning rate, before the schedule.")]
Epsilon = Annotated[
    Positive, Field(description="Added to the root of the mean squared gradient before dividing by it.")
]
WeightDecay = Annotated[
    Extent,
    Field(
        description="Each step subtracts this times the learning rate times the kernel; biases and gains do not decay."
    ),
]


class _Optimizer(Frozen):
    """Fields that all optimizers share."""

    name: str
    """Tag of the union; the docstring of the class is its help."""
    learning_rate: LearningRate
    clip_norm: Positive | None = None
    """Maximum global norm of the gradient, which is clipped above it; None does not clip."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Momentum of an exponential moving average of the weights, used for validation and for the final model; running
    statistics of batch normalization get at least the same momentum. None disables it."""


class SGD(_Optimizer):
    """SGD with momentum."""

    name: Literal["sgd"] = "sgd"
    learning_rate: LearningRate = 0.01
    momentum: Rate = 0.9
    """Momentum."""
    nesterov: bool = True
    """Use Nesterov momentum."""
    bias_multiplier: Positive = 1.0
    """Factor on the learning rate of every bias."""
    weight_decay: Extent = 0.0
    """Decoupled: each step subtracts this times the learning rate times the kernel; biases and gains do not decay. The
    decay does not enter the momentum: the equivalent L2 penalty is this times (1 - momentum)."""


class Adam(_Optimizer):
    """Adam."""

    name: Literal["adam"] = "adam"
    learning_rate: LearningRate = 0.001
    epsilon: Epsilon = 1e-7


class AdamW(_Optimizer):
    """Adam with decoupled weight decay."""

    name: Literal["adamw"] = "adamw"
    learning_rate: LearningRate = 0.001
    epsilon: Epsilon = 1e-7
    weight_decay: WeightDecay = 0.004


class Lion(_Optimizer):
    """Lion: steps of equal size in every weight, by the sign of an averaged gradient."""

    name: Literal["lion"] = "lion"
    learning_rate: Positive = 0.0003
    """Initial learning rate, before the schedule; a third to a tenth of Adam's."""
    beta_1: Share = 0.9
    """Share of the averaged gradient in the sign; the rest is the gradient of the step."""
    beta_2: Share = 0.99
    """Momentum of the averaged gradient."""
    weight_decay: WeightDecay = 0.0


class Muon(_Optimizer):
    """Muon: SGD with momentum and orthogonalized steps for kernels, Adam for biases, gains and the last layer."""

    name: Literal["muon"] = "muon"
    learning_rate: Positive = 0.002
    """Initial learning rate of both, before the schedule."""
    momentum: Rate = 0.95
    """Nesterov momentum of the kernels."""
    weight_decay: WeightDecay = 0.0


class ConstantSchedule(Frozen):
    """Constant."""

    kind: Literal["constant"] = "constant"


class StepSchedule(Frozen):
    """Multiplied by `factor` at each boundary."""

    kind: Literal["step"] = "step"
    boundaries: tuple[Count, ...] = ()
    """Steps at which the learning rate is multiplied by `factor`."""
    factor: Share = 0.1
    """Multiplier."""

    @model_validator(mode="after")
    def _boundaries_rise(self) -> Self:
        if not self.boundaries:
            raise ValueError("a step schedule needs boundaries: set them to the steps at which the learning rate falls")
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise ValueError(f"boundaries must rise. Received: boundaries={self.boundaries}")
        return self


class ExponentialSchedule(Frozen):
    """Exponential decay, by `factor` in every `decay_steps`."""

    kind: Literal["exponential"] = "exponential"
    factor: Share = 0.1
    """Multiplier."""
    decay_steps: Count = 1000
    """Number of steps over which the learning rate is multiplied by `factor` once."""


class CosineSchedule(Frozen):
    """Cosine decay to zero at the end of the run."""

    kind: Literal["cosine"] = "cosine"
    warmup: Rate = 0.0
    """Share of the run over which the learning rate rises from zero."""
    warmup_steps: NonNegative = 0
    """Steps over which it rises, in place of a share of the run."""

    @model_validator(mode="after")
    def _one_warm_up(self) -> Self:
        if self.warmup and self.warmup_steps:
            raise ValueError(
                "a warm-up is a share of the run or a number of steps: set warmup or warmup_steps to 0. "
                f"Received: warmup={self.warmup:.4g}, warmup_steps={self.warmup_steps}"
            )
        return self


class TrapezoidSchedule(Frozen):
    """Linear warm-up from zero, constant, linear decay to zero; one cycle if the two shares add up to 1."""

    kind: Literal["trapezoid"] = "trapezoid"
    warmup: Rate = 0.1
    """Share of the run over which the learning rate rises from zero."""
    decay: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the run, at its end, over which the learning rate falls to zero."""

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        # Decimal fractions such as 0.7 + 0.3 may exceed 1 by rounding.
        if self.warmup + self.decay > 1 + 1e-9:
            raise ValueError(
                f"warmup and decay are shares of one run. Received: warmup={self.warmup}, decay={self.decay}"
            )
        return self


def _migrating(tag: str, members: tuple[type[Frozen], ...], flat: set[str], later: set[str]) -> BeforeValidator:
    """Reads configurations of version 0.1, in which a single model had the fields of all members.

    Args:
        tag: the field that names the member; the first member is the default.
        members: the members that version 0.1 had.
        flat: fields by which such a configuration is recognized.
        later: further fields that it may have.
    """
    fields = {member.model_fields[tag].default: set(member.model_fields) for member in members}

    def migrate(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        value = {tag: next(iter(fields)), **value}
        own = fields.get(value[tag])
        if own is None or not flat <= value.keys():
            return value
        return {name: item for name, item in value.items() if name in own or name not in flat | later}

    return BeforeValidator(migrate)


Optimizer = Annotated[
    SGD | Adam | AdamW | Lion | Muon,
    Field(discriminator="name"),
    _migrating("name", (SGD, Adam), {"momentum", "nesterov", "bias_multiplier"}, {"epsilon"}),
]
"""Each optimizer has its own fields; `name` selects it."""

Schedule = Annotated[
    ConstantSchedule | StepSchedule | ExponentialSchedule | CosineSchedule | TrapezoidSchedule,
    Field(discriminator="kind"),
    _migrating(
        "kind",
        (ConstantSchedule, StepSchedule, ExponentialSchedule, CosineSchedule),
        {"boundaries", "factor", "decay_steps", "warmup_steps"},
        set(),
    ),
]
"""The learning rate over steps; `kind` selects the schedule."""


def scaled(schedule: Schedule, ratio: float) -> Schedule:
    """Scales a schedule that counts in steps to a shorter run; others follow the length of the run by themselves.

    Args:
        schedule: schedule of the full run.
        ratio: steps of the shorter run, relative to the full one.

    Example:
        scaled(ExponentialSchedule(decay_steps=1000), 0.1).decay_steps  # 100
    """
    match schedule:
        case StepSchedule(boundaries=boundaries):
            # Boundaries may coincide after rounding; the rate then drops once.
            shorter = tuple(sorted({max(1, round(boundary * ratio)) for boundary in boundaries}))
            return schedule.model_copy(update={"boundaries": shorter})
        case ExponentialSchedule(decay_steps=steps):
            return schedule.model_copy(update={"decay_steps": max(1, round(steps * ratio))})
        case CosineSchedule(warmup_steps=steps):
            return schedule.model_copy(update={"warmup_steps": round(steps * ratio)})
    return schedule

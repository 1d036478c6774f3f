"""The configuration of a run: typed, frozen, validated, and nothing but data.

It is what a recipe holds, what the command line overrides and what a run directory keeps, so it must be
importable without any framework.
"""

from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipelines.core.errors import UserError

Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]


Data = TypeVar("Data", bound=BaseModel)


class Frozen(BaseModel):
    """Base of every configuration: no unknown fields, no changes, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class ModelConfig(Frozen):
    """Which net: a preset of `highway_keras`, and what differs from it."""

    preset: str
    """Name of the preset (`highway_keras.from_preset`)."""
    depth: Count | None = None
    """Hidden layers of a dense net; None keeps the preset's."""
    width: Count | None = None
    """Units a layer, or filters of the first stage; None keeps the preset's."""
    activation: str | None = None
    """Activation of the block state H; None keeps the preset's."""
    transform_bias: float | Literal["auto"] | None = None
    """Initial bias of the transform gate; "auto" takes it from the depth, None keeps the preset's."""
    match: Literal["width", "parameters"] | None = None
    """What a plain or residual twin shares with the highway net; None keeps the preset's."""
    initializer: Literal["glorot_uniform", "fan_in_uniform"] | None = None
    """How the kernels of a dense net start: by normalised initialisation, or evenly within one over the root of the
    inputs of a unit; None keeps the preset's."""
    dropout: Rate | None = None
    """Share of units dropped while training: at each place where a convolutional net drops some, and before the
    last layer of a dense net; None keeps the preset's."""


class Subset(Frozen):
    """How many examples are used, and how they are drawn."""

    train: Count | None = None
    """Training examples, out of those that are not held out for validation; None takes all."""
    test: Count | None = None
    """Test examples, to evaluate on; None takes all."""
    seed: NonNegative | None = None
    """None draws of each class its share, the same examples in every run. A number draws of MNIST as it was published:
    NumPy's `default_rng` with that seed shuffles the training and then the test examples, and the first are taken."""


class Preprocess(Frozen):
    """From stored pixels, or vectors, to what the net sees: scale, offset, contrast, mean. Applied in this order."""

    scale: Positive = 1 / 255
    """Factor on the stored value."""
    offset: float = 0.0
    """What is added to the scaled value; contrast and mean take it out again."""
    contrast: Positive | None = None
    """Global contrast normalisation: each image gets mean 0 and this standard deviation; None leaves it out."""
    mean: Literal["none", "channel", "pixel"] = "none"
    """Mean of the training images to subtract: of each channel, or of each pixel (of vectors: of each place)."""


class Augment(Frozen):
    """Changes to the training images, made after preprocessing, so that padding is the mean."""

    pad: NonNegative = 0
    """Pixels of zero padding on each side before a random crop of the first size; 0 leaves both out."""
    mirror: bool = False
    """Mirror each image left to right with probability 1/2."""


class Optimizer(Frozen):
    """How weights follow gradients."""

    name: Literal["sgd", "adam"] = "sgd"
    """SGD with momentum, or Adam."""
    learning_rate: Positive = 0.01
    """At the start, before the schedule."""
    momentum: Rate = 0.9
    """Of SGD."""
    nesterov: bool = True
    """Of SGD."""
    epsilon: Positive = 1e-7
    """Of Adam: added to the root of the mean squared gradient before dividing by it."""
    bias_multiplier: Positive = 1.0
    """Factor on the learning rate of every bias (SGD)."""
    clip_norm: Positive | None = None
    """Largest global norm of the gradient; None does not clip."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Momentum of a running average of the weights, used for validation and for the final model."""


class Schedule(Frozen):
    """Learning rate over steps."""

    kind: Literal["constant", "step", "exponential", "cosine"] = "constant"
    """Constant; times `factor` at each boundary; times `factor` every `decay_steps`; cosine to zero at the end."""
    boundaries: tuple[Count, ...] = ()
    """Steps at which the rate is multiplied by `factor` (step)."""
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Multiplier (step, exponential)."""
    decay_steps: Count = 1000
    """Steps in which the rate falls by `factor` once (exponential)."""
    warmup_steps: NonNegative = 0
    """Steps of a linear rise from zero (cosine)."""

    @model_validator(mode="after")
    def _boundaries_belong_to_step(self) -> Self:
        if self.kind == "step" and not self.boundaries:
            raise ValueError("a step schedule needs boundaries: the steps at which the rate falls")
        if self.kind != "step" and self.boundaries:
            raise ValueError(f"only a step schedule has boundaries. Received: boundaries={self.boundaries}")
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise ValueError(f"boundaries must rise. Received: boundaries={self.boundaries}")
        return self


class Config(Frozen):
    """Everything that decides what a run computes."""

    recipe: str
    """Name of the recipe that this started from."""
    model: ModelConfig
    data: str
    """TFDS name (`mnist`, `cifar10`, ..., with version or config if wanted), or the folder of a prepared data set."""
    validation: NonNegative = 0
    """Training examples held out for validation, drawn by a fixed seed; ignored for data with a validation split."""
    subset: Subset = Subset()
    preprocess: Preprocess = Preprocess()
    augment: Augment = Augment()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    epochs: Count = 1
    """Passes over the training examples; each has `examples // batch_size` steps."""
    batch_size: Count = 100
    """Examples a step."""
    label_smoothing: Rate = 0.0
    """Share of each target spread over all classes."""
    seed: NonNegative = 0
    """Decides weights, order of the data, augmentation and dropout."""
    precision: Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"] = "auto"
    """Keras dtype policy; "auto" is what this machine computes fastest with."""
    steps_per_execution: Count | Literal["auto"] = "auto"
    """Steps in one call of the compiled program; metrics and progress follow at this interval. "auto" takes one, and
    of a shallow dense highway net on a CPU many, as each is short."""

    @model_validator(mode="after")
    def _draws_by_seed_are_of_all(self) -> Self:
        if self.subset.seed is not None and self.validation:
            raise ValueError(
                "a subset that is drawn by a seed is drawn from all training examples: none can be held out for "
                f"validation. Received: subset.seed={self.subset.seed}, validation={self.validation}"
            )
        return self

    def seeded(self, seed: int, draws: int | None = None) -> Self:
        """The same with another seed, by which a subset is drawn as well if it is drawn by one.

        Args:
            seed: of weights, order and the rest.
            draws: how many subsets are drawn, which the seeds take in turn; None for one each.

        Example:
            config.seeded(4, draws=3).subset.seed  # 1, if it had one
        """
        subset = self.subset
        if subset.seed is not None:
            subset = subset.model_copy(update={"seed": seed if draws is None else seed % draws})
        return self.model_copy(update={"seed": seed, "subset": subset})


class Space(Frozen):
    """What a search may change. A range is LOW HIGH, a choice any number of values; empty is not searched."""

    learning_rate: tuple[Positive, ...] = ()
    """Range of `optimizer.learning_rate`, evenly over its logarithm."""
    momentum: tuple[Rate, ...] = ()
    """Range of `optimizer.momentum`."""
    decay: tuple[Annotated[float, Field(gt=0, le=1)], ...] = ()
    """Range of `schedule.factor`, by which the learning rate falls."""
    activation: tuple[str, ...] = ()
    """Choice of `model.activation`."""
    transform_bias: tuple[float, ...] = ()
    """Range of `model.transform_bias`; nets without gates go without it."""
    depth: tuple[Count, ...] = ()
    """Choice of `model.depth`."""
    width: tuple[Count, ...] = ()
    """Choice of `model.width`."""
    dropout: tuple[Rate, ...] = ()
    """Range of `model.dropout`."""
    batch_size: tuple[Count, ...] = ()
    """Choice of `batch_size`."""
    precision: tuple[Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"], ...] = ()
    """Choice of `precision`."""

    @model_validator(mode="after")
    def _ranges_rise(self) -> Self:
        for name in ("learning_rate", "momentum", "decay", "transform_bias", "dropout"):
            bounds = getattr(self, name)
            if bounds and (len(bounds) != 2 or bounds[0] >= bounds[1]):
                raise ValueError(f"{name} is a range, LOW HIGH. Received: {' '.join(map(str, bounds))}")
        for name in ("activation", "depth", "width", "batch_size", "precision"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"each choice of {name} stands once. Received: {' '.join(map(str, values))}")
        return self


class Provenance(Frozen):
    """Where the numbers of a recipe come from."""

    recorded: tuple[str, ...] = ()
    """Fields read in the authors' own files or printed in the paper."""
    count_matched: tuple[str, ...] = ()
    """Fields chosen so that the parameter count meets the paper's."""
    assumed: tuple[str, ...] = ()
    """Fields that are ours, because the source is silent."""


class Recipe(Frozen):
    """A named result: the configuration that makes it, and what is known of it."""

    config: Config
    source: str
    """Paper and table or figure."""
    published: str
    """The source's own metric: best (mean +- std), and what it was measured on."""
    provenance: Provenance
    search: Space = Space()
    """What `highway tune` searches; its bounds are ours."""
    measured: str = ""
    """What this code made: best (mean +- std, n), command, hardware, versions, wall time; empty if not yet run."""

    @property
    def name(self) -> str:
        """The name of the recipe, that of its preset."""
        return self.config.recipe


def read(path: Path, kind: type[Data]) -> Data:
    """Reads a JSON file that this program wrote.

    Args:
        path: the file.
        kind: what it holds.

    Raises:
        UserError: the file is damaged or of another version.
        FileNotFoundError: there is none.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path} is damaged or of another version: {where}: {first['msg']}.") from error

"""The configuration of a run: typed, frozen, validated, and nothing but data.

A recipe holds a configuration, the command line overrides its fields, and a run directory stores it. Imports no
framework.
"""

import json
import math
import operator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, create_model, field_validator, model_validator

from pipelines.core.frozen import Angle, Count, Extent, Frozen, NonNegative, Positive, Rate, Share
from pipelines.core.hyperparameters import hyperparameters
from pipelines.core.optimizers import SGD, ConstantSchedule, Optimizer, Schedule


class StageConfig(Frozen):
    """A stage of a convolutional net; see `highway_keras.models.stages.Stage`. On the command line, a JSON object."""

    filters: Count
    """Channels of all layers."""
    entry: Count | None = 3
    """Kernel size of the plain convolution at the start; None for none."""
    padding: Literal["same", "valid"] = "same"
    """Padding of the entry."""
    blocks: tuple[Count, ...] = ()
    """Kernel size of each block."""
    pool: tuple[Count, Count] | Literal["average"] | None = None
    """Size and stride of max pooling; "average" for global average pooling; None for none."""
    dropout: Rate = 0.0
    """Dropout rate after pooling."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        with suppress(ValueError):
            return json.loads(value) if isinstance(value, str) else value
        return value

    def __str__(self) -> str:
        return self.model_dump_json(exclude_defaults=True)


class ModelConfig(Frozen):
    """A preset of `highway_keras` and its overrides."""

    preset: str
    """Name of the preset (`highway_keras.from_preset`); or a function of your own, MODULE:FUNCTION, that is called with
    `input_shape` and `outputs` and returns a Keras model."""
    depth: Count | None = None
    """Hidden layers of a dense net; None keeps the preset's."""
    width: Count | None = None
    """Units of a layer, or filters of the first stage; None keeps the preset's."""
    activation: str | None = None
    """Activation of the block state H; None keeps the preset's."""
    transform_bias: float | Literal["auto"] | None = None
    """Initial bias of the transform gate; "auto" derives it from the depth, None keeps the preset's."""
    stages: Annotated[tuple[StageConfig, ...], Field(min_length=1)] | None = None
    """Stages of a convolutional net, from the input to the last layer; None keeps the preset's."""
    hidden: Count | None = None
    """Units of a fully connected layer before the last layer of a convolutional net; None keeps the preset's."""
    match: Literal["width", "parameters"] | None = None
    """Property that a plain or residual twin shares with the highway net; None keeps the preset's."""
    initializer: Literal["glorot_uniform", "fan_in_uniform"] | None = None
    """Kernel initializer of a dense net, Glorot's or uniform within ±1/sqrt(fan_in); None keeps the preset's."""
    dropout: Rate | None = None
    """Dropout rate of each dropout layer that a convolutional net has, that of the input included, or before the last
    layer of a dense net; None keeps the preset's."""
    batch_normalization: bool | None = None
    """Batch normalization of a convolutional net, of H in each block and of the entries; None keeps the preset's."""
    whitened: bool = Field(False, exclude_if=lambda whitened: not whitened)
    """Start the first convolution as a whitening of patches of the training images, in place of random values; it is
    trained like any other."""


class Subset(Frozen):
    """The subset of the examples to use."""

    train: Count | None = None
    """Training examples to use, out of those not held out for validation; None takes all."""
    test: Count | None = None
    """Test examples to evaluate on; None takes all."""
    seed: NonNegative | None = None
    """Seed of the draw. None takes the same share of every class, and the same examples in every run. With a number,
    NumPy's `default_rng` of that seed shuffles MNIST's training and then its test examples, and the first are taken."""


class Preprocess(Frozen):
    """Preprocessing of stored pixels or vectors, in this order: scale, offset, contrast, mean."""

    scale: Positive = 1 / 255
    """Factor on the stored value."""
    offset: float = 0.0
    """Added to the scaled value; contrast normalization and mean subtraction cancel it."""
    contrast: Positive | None = None
    """Global contrast normalization: each image gets mean 0 and this standard deviation; None skips it."""
    mean: Literal["none", "channel", "pixel"] = "none"
    """Mean of the training images to subtract: per channel, or per pixel (of vectors: per feature)."""


class Augment(Frozen):
    """Augmentation of the training images, in the order of the fields. Each image gets its own random draws.

    All are off by default. RandAugment changes stored pixels; the others follow preprocessing, so that padding has the
    value of the mean.
    """

    rand_augment: NonNegative = 0
    """RandAugment: number of random operations (geometry, colours, contrast) on each image; 0 skips it."""
    magnitude: Share = 0.3
    """Strength of these operations, as a share of the strongest."""
    sharpness: Rate = 0.0
    """Blur or sharpen each image by a random factor between 1 - sharpness and 1 + sharpness: 0 is blurred, 1 the image
    as it is, 2 sharpened; 0 skips it."""
    pad: NonNegative = 0
    """Pixels of zero padding on each side before a random crop to the original size; 0 skips both."""
    mirror: bool = False
    """Mirror each image left to right with probability 1/2."""
    rotate: Angle = 0.0
    """Largest angle in degrees by which an image is rotated, in either direction; 0 skips it."""
    zoom: Extent = 0.0
    """Scale each image by a factor between 1 / (1 + zoom) and 1 + zoom, log-uniform; 0 skips it."""
    elastic: Extent = 0.0
    """Elastic distortion: standard deviation, in pixels, of the smooth random displacements of an image; 0 skips it."""
    cutout: NonNegative = 0
    """Side in pixels of a square that is erased around a random pixel; 0 skips it."""
    mixup: Extent = 0.0
    """Mixup of images and targets, with shares from Beta(mixup, mixup); 0 skips it."""
    cutmix: Extent = 0.0
    """CutMix: a rectangle comes from another image; its share of the area, from Beta(cutmix, cutmix), also mixes the
    targets. 0 skips it."""

    @model_validator(mode="after")
    def _images_are_mixed_once(self) -> Self:
        if self.mixup and self.cutmix:
            raise ValueError(
                "images are mixed by mixup or by cutmix, not by both: set one of them to 0. "
                f"Received: mixup={self.mixup}, cutmix={self.cutmix}"
            )
        return self


class Config(Frozen):
    """Everything that determines what a run computes."""

    recipe: str
    """Name of the recipe that the run started from."""
    model: ModelConfig
    data: str
    """TFDS name (`mnist`, `cifar10`, ..., optionally with version or config), the folder of a prepared data set, or
    path or URL of labelled images of your own (a folder of folders, a table, an `.npz` file, tar files), or of a table
    of numbers and categories (CSV, TSV or Parquet)."""
    target: str | None = None
    """Column of a table of numbers that is predicted; None for a column named target, label, class or y."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """Predict a class or a number from a table of numbers; "auto" decides by the values of the target."""
    label_separator: Annotated[str, Field(min_length=1)] | None = Field(
        None, exclude_if=lambda separator: separator is None
    )
    """Text between the classes in a label of your own data, such as a comma; images or rows then have any number of
    classes. None for one class each; lists of classes need no separator."""
    image_size: tuple[Count, ...] = (32,)
    """Side, or height and width, to which your own images are scaled."""
    image_fit: Literal["crop", "pad", "squash"] = "crop"
    """Crop your images to that shape around the centre, pad them with grey, or squash them."""
    group: str | None = None
    """Column of your own table whose equal values, such as those of a patient, stay in one split."""
    skip_damaged: bool = False
    """Leave out images of your own that cannot be read."""
    start_from: str | None = Field(None, alias="from")
    """Run directory or `.keras` file of a net whose weights training starts from, or its URL, or a preset with trained
    weights; the last layer is new if the number of classes differs. None draws all weights by the seed."""
    freeze: NonNegative | Literal["all"] = 0
    """Layers with weights, counted from the input, whose weights are not trained; "all" trains the last layer only."""
    validation: NonNegative = 0
    """Training examples held out for validation, drawn with a fixed seed; ignored for data with a validation split."""
    subset: Subset = Subset()
    preprocess: Preprocess = Preprocess()
    augment: Augment = Augment()
    small_side: NonNegative = 0
    """Shorter side, in pixels, to which images are shrunk in the first epochs, whose steps then take less time; for
    nets that average over all positions before their last layers. 0 trains at full size from the start."""
    small_share: Rate = 0.5
    """Share of the epochs that train on these smaller images, rounded down to whole epochs."""
    optimizer: Optimizer = SGD()
    schedule: Schedule = ConstantSchedule()
    epochs: Count = 1
    """Passes over the training examples, of `examples // batch_size` steps each."""
    batch_size: Count = 100
    """Examples per step."""
    label_smoothing: Rate = 0.0
    """Share of each target spread over all classes."""
    class_weights: Literal["none", "balanced"] = "none"
    """Weights of the classes in the training loss; "balanced" gives each class the same sum of weights."""
    sampling: Literal["all", "balanced"] = "all"
    """Training examples of an epoch: "all" of them once, or "balanced", as many of each class; examples of small
    classes then come more than once, and those of large classes not in every epoch."""
    patience: NonNegative = 0
    """Epochs without a better validation score after which training ends; 0 trains all epochs. Those with smaller
    images do not count."""
    seed: NonNegative = 0
    """Seed of initial weights, order of the data, augmentation and dropout."""
    precision: Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"] = "auto"
    """Keras dtype policy; "auto" picks the fastest one on this machine."""
    steps_per_execution: Count | Literal["auto"] = "auto"
    """Steps per call of the compiled program; metrics and progress update at this interval. "auto" means one, or more
    for shallow dense highway nets on a CPU, whose steps are short."""

    @model_validator(mode="after")
    def _sizes_are_one_or_two(self) -> Self:
        if len(self.image_size) not in (1, 2):
            raise ValueError(
                f"image_size is a side, or height and width. Received: {' '.join(map(str, self.image_size))}"
            )
        return self

    @model_validator(mode="after")
    def _classes_are_balanced_once(self) -> Self:
        if self.class_weights == self.sampling == "balanced":
            raise ValueError("classes are balanced by class_weights or by sampling. Received: both")
        return self

    @model_validator(mode="after")
    def _weights_start_once(self) -> Self:
        if self.start_from and self.model.whitened:
            raise ValueError(
                "the first convolution starts from a trained net (--from) or as a whitening (--model.whitened), not "
                f"both. Received: from={self.start_from}, model.whitened={self.model.whitened}"
            )
        return self

    @property
    def height_and_width(self) -> tuple[int, int]:
        """Height and width of the user's own images."""
        return self.image_size[0], self.image_size[-1]

    @property
    def small_epochs(self) -> int:
        """Number of epochs, the first ones, that train on smaller images."""
        # Rounding must not turn a share of 0.29 of 100 epochs into 28.
        return int(self.small_share * self.epochs + 1e-9) if self.small_side else 0

    def small_size(self, height: int, width: int) -> tuple[int, int]:
        """Returns height and width of the smaller images.

        Args:
            height: height of the images.
            width: their width.
        """
        shorter = min(height, width)
        return round(height * self.small_side / shorter), round(width * self.small_side / shorter)

    @model_validator(mode="after")
    def _draws_by_seed_are_of_all(self) -> Self:
        if self.subset.seed is not None and self.validation:
            raise ValueError(
                "a subset with a seed is drawn from all training examples: none can be held out for "
                f"validation. Received: subset.seed={self.subset.seed}, validation={self.validation}"
            )
        return self

    def divisor(self, processes: int, devices: int = 1) -> int:
        """Returns the number that the batch size must be a multiple of, to be divided evenly.

        Args:
            processes: number of processes that train together.
            devices: number of devices of each.
        """
        mixes = processes > 1 and (self.augment.mixup or self.augment.cutmix)
        # Images are mixed in pairs, which must not be torn apart.
        return math.lcm(devices * processes, 2 * processes) if mixes else devices * processes

    def seeded(self, seed: int, draws: int | None = None) -> Self:
        """Returns a copy with another seed, also of the subset if that has one.

        Args:
            seed: the new seed.
            draws: number of different subsets, through which successive seeds cycle; None draws one per seed.

        Example:
            config.seeded(4, draws=3).subset.seed  # 1, if it had one
        """
        subset = self.subset
        if subset.seed is not None:
            subset = subset.model_copy(update={"seed": seed if draws is None else seed % draws})
        return self.model_copy(update={"seed": seed, "subset": subset})


HYPERPARAMETERS = hyperparameters(Config)
"""Everything that a search can vary, by name."""
_FIELDS: dict[str, Any] = {
    name: (one.values, Field((), description=one.description, exclude_if=operator.not_))
    for name, one in HYPERPARAMETERS.items()
}
_Hyperparameters: Any = create_model("_Hyperparameters", __base__=Frozen, **_FIELDS)


class Space(_Hyperparameters):
    """The search space: a field for each of the `HYPERPARAMETERS`.

    A range is LOW HIGH, a choice any number of values; an empty hyperparameter is not searched.
    """

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    @field_validator("*")
    @classmethod
    def _ranges_rise(cls, values: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
        name = str(info.field_name)
        is_choice = HYPERPARAMETERS[name].is_choice
        if is_choice and len(set(values)) < len(values):
            raise ValueError(f"choices of {name} must be unique. Received: {' '.join(map(str, values))}")
        if not is_choice and values and (len(values) != 2 or values[0] >= values[1]):
            raise ValueError(f"{name} is a range, LOW HIGH. Received: {' '.join(map(str, values))}")
        return values


class Provenance(Frozen):
    """The sources of a recipe's numbers."""

    recorded: tuple[str, ...] = ()
    """Fields found in the authors' own files or printed in the paper."""
    count_matched: tuple[str, ...] = ()
    """Fields chosen to match the paper's parameter count."""
    assumed: tuple[str, ...] = ()
    """Fields chosen by us, because the source does not state them."""


class Recipe(Frozen):
    """A named result: its configuration and what is known about it."""

    config: Config
    source: str
    """Paper and table or figure."""
    published: str
    """The source's own metric: best (mean ± std), and what it was measured on."""
    provenance: Provenance = Provenance()
    search: Space = Space()
    """Search space of `highway tune`; its bounds are ours."""
    measured: str = ""
    """Our own result: best (mean ± std, n), command, hardware, versions, wall time; empty if not yet run."""

    @property
    def name(self) -> str:
        """The name of the recipe."""
        return self.config.recipe

"""`manifest.json`: content and origin of a model version, and the measurements of its export.

A version folder is a TensorFlow SavedModel with more files next to it:

    saved_model.pb, variables/, ...  the SavedModel, signatures `serving_default` and `serving_bytes`
    assets.extra/                    warm-up requests for TF Serving
    model.onnx                       the function of `serving_default` for ONNX Runtime
    model.int8.onnx                  the same, quantized to int8, if requested
    weights.npz                      weights that `model.onnx` points at, in the nets of the package only
    picture.onnx                     from an image of any size to the input of `model.onnx`
    labels.txt                       names of the classes, one per line, by index
    parity.npz                       reference images or rows with the outputs of the Keras model
    manifest.json                    a `Manifest`
    manifest.json.sig                its signature, if the version is signed; see `serving.signature`

`serving_default` takes `image`: uint8 `[batch, height, width, channels]`; `serving_bytes` takes `image_bytes`: strings
`[batch]`, PNG or JPEG files of any size. Both give `probabilities`, float32 `[batch, classes]`; `class_id`, int64
`[batch]`; `label`, strings `[batch]`; and `gate_means`, float32 `[batch, layers]`, if requested. With `multi_label`,
each class has its own probability, and `class_id` and `label` are the most probable one.
Versions for tables take `row` instead, float32 `[batch, columns]`, and have no `serving_bytes`, `picture.onnx` or
`gate_maps`. A category is sent as its index, -1 if it is missing or unknown; a missing number is NaN. A regression
gives `value`, float32 `[batch, 1]`, in place of `probabilities`, `class_id` and `label`, and has no `labels.txt`. A
date is sent as days since 1970, with a fraction for the time of day.
`model.onnx` also gives `gate_maps`, float32 `[batch, positions]`, if the manifest describes `maps`.
`picture.onnx` takes `rgba`: uint8 `[height, width, 4]`, and gives `image`; for digits also `boxes`, float32
`[digits, 4]`: top, bottom, left and right of each digit, from left to right, as shares of height and width; and for
natural images `crop`, float32 `[4]`: those of the part that becomes the input.
Preprocessing is inside the graphs.

`format` increases when an older reader would misread a manifest: 2 for tables, 1 for images. Readers ignore unknown
fields.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ValidationError, field_validator, model_validator

from serving import regular_files, signature
from serving.errors import ModelError, damage, in_brackets
from serving.inputs import INPUT, ROW, AnyInput, Column, Input, RowInput, Tensor
from serving.measurements import Count, Int8, ManifestPart, Parity
from serving.package import again

NAME = "manifest.json"
ONNX = "model.onnx"
INT8 = "model.int8.onnx"
PICTURE = "picture.onnx"
WEIGHTS = "weights.npz"
LABELS = "labels.txt"
REFERENCE = "parity.npz"
WARMUP = "assets.extra/tf_serving_warmup_requests"
SIGNATURE = "serving_default"
SIGNATURE_FILES = "serving_bytes"
ENCODED = "image_bytes"
RGBA = "rgba"
BOXES = "boxes"
# Most digits that `picture.onnx` finds in an image.
MOST_DIGITS = 16
CROP = "crop"
# Metadata of `picture.onnx`: length of an image's shorter side that is enough; see `serving.image_files.reduction`.
SIDE = "side"
PROBABILITIES = "probabilities"
VALUE = "value"
CLASS_ID = "class_id"
LABEL = "label"
GATE_MEANS = "gate_means"
GATE_MAPS = "gate_maps"

# Of a version, in messages. It does not record which of the two is the reason.
WITHOUT_GATES = (
    "was exported without its gates, or its net has no highway layers. In the first case, export its run again, "
    "without --no-gates."
)

# How an image of any size becomes the input: as a digit of MNIST; or as a photograph that is cropped, padded or
# squashed to the aspect ratio of the input.
ConversionKind = Literal["digit", "natural", "padded", "squashed"]

# Largest number of a version: TF Serving, both protocols over gRPC, and JSON libraries take 64 bits with a sign.
LARGEST_VERSION = 2**63 - 1
Format = Literal[1, 2]
# Format of versions for tables.
TABLES = 2


_ENCODED = Tensor(dtype="string", shape=(None,))


class GateMap(ManifestPart):
    """A convolutional highway layer in `gate_maps`: its mean gates at each position, row by row."""

    layer: str
    """Name of the layer, as in `gates`."""
    height: Annotated[int, Field(ge=1)]
    """Rows."""
    width: Annotated[int, Field(ge=1)]
    """Columns."""


class NetRecord(ManifestPart):
    """The net."""

    preset: str
    """Preset of `highway_keras`; a twin ends in _plain or _residual."""
    overrides: dict[str, Any]
    """Differences from the preset."""
    parameters: Count
    """Number of trained weights."""
    weights: Literal["final", "best"]
    """From the last step, or from the epoch with the highest validation accuracy."""


class TrainingRecord(ManifestPart):
    """The training run that the weights come from."""

    name: str
    """Name of the run directory."""
    config: dict[str, Any]
    """Its configuration."""
    data: dict[str, Any]
    """Name, version and example counts of its data."""
    commit: str | None
    """Commit of the code, with a final "+" if tracked files differed; null for an installed package."""
    backend: str
    """Keras backend."""
    precision: str
    """Keras dtype policy of the training; exports are always float32."""
    versions: dict[str, str]
    """Versions of Python and the packages."""
    steps: Count
    """Training steps."""
    seconds: float
    """Wall time of training."""
    metrics: dict[str, float]
    """After the last epoch, on training and validation data."""
    test: dict[str, Any] | None
    """Result on the test split; null if the run had not been evaluated."""
    pruned: dict[str, Any] | None = Field(None, exclude_if=lambda pruned: pruned is None)
    """How the net was pruned: source run, removed layers, the split they were chosen on, and scores before and after.
    Left out if it was not."""


class FileRecord(ManifestPart):
    """A file of the version."""

    size: Count
    """Size in bytes."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the content."""


class Manifest(ManifestPart):
    """Description of a model version."""

    format: Format = 1
    """Format of this file."""
    name: str
    """Name of the model."""
    version: Annotated[int, Field(ge=1, le=LARGEST_VERSION)]
    """Number of the version, and name of its folder."""
    created: str
    """ISO 8601, UTC."""
    input: AnyInput
    """The input."""
    outputs: dict[str, Tensor]
    """Outputs by name."""
    labels: tuple[str, ...]
    """Names of the classes, by index; none for a regression."""
    multi_label: bool = Field(False, exclude_if=lambda multi_label: not multi_label)
    """True if an example may belong to any number of classes; left out of the file otherwise."""
    target: str | None = Field(None, exclude_if=lambda target: target is None)
    """Column of the table that is predicted; left out of the file for images."""
    pictures: ConversionKind | None = None
    """Conversion of images of any size: like MNIST's digits; or the centre of a photograph, all of it with grey bars,
    or all of it squashed. Null in versions without `picture.onnx`."""
    gates: tuple[str, ...] | None = None
    """Highway layers in the order of `gate_means`; null if the graphs do not compute gates."""
    maps: tuple[GateMap, ...] = Field(default=(), exclude_if=lambda maps: not maps)
    """Layers in `gate_maps` of `model.onnx`, one map after the other; left out of the file if it does not
    return them."""
    temperature: Annotated[float, Field(gt=0)] | None = Field(None, exclude_if=lambda number: number is None)
    """Number by which the graphs divide the logits, fitted on held-out images so that probabilities are calibrated;
    left out of the file if they do not."""
    preprocess: dict[str, Any]
    """Settings of the preprocessing in the graph: scale, contrast, mean."""
    model: NetRecord
    """The net."""
    run: TrainingRecord
    """The training run."""
    opset: int
    """Opset of `model.onnx`."""
    versions: dict[str, str]
    """Versions of Python and the packages that wrote the files."""
    parity: Parity
    """Measured after writing."""
    int8: Int8 | None = None
    """The int8 form; null if there is none."""
    files: dict[str, FileRecord]
    """Every other file in the folder, by path."""

    @property
    def is_table(self) -> bool:
        """True if it predicts rows of a table; false for images."""
        return isinstance(self.input, RowInput)

    @property
    def is_grey(self) -> bool:
        """True if it takes grey images; false for colours and for tables."""
        return isinstance(self.input, Input) and self.input.colour == "grey"

    @property
    def unit(self) -> str:
        """One example of a batch, in messages: an image, or a row."""
        return ROW if self.is_table else INPUT

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of a row; none for images."""
        return self.input.columns if isinstance(self.input, RowInput) else ()

    @property
    def label_separator(self) -> str | None:
        """Text between the classes in a cell of the target; None if a cell is one class, or a list."""
        found = self.run.config.get("label_separator")
        return found if isinstance(found, str) else None

    @property
    def signatures(self) -> dict[str, tuple[str, Tensor]]:
        """Name and tensor of the input by signature."""
        found: dict[str, tuple[str, Tensor]] = {SIGNATURE: (self.input.name, self.input)}
        if not self.is_table:
            found[SIGNATURE_FILES] = ENCODED, _ENCODED
        return found

    @property
    def predicted(self) -> str:
        """The output that the others follow from: probabilities, or the value of a regression."""
        return VALUE if self.is_table and VALUE in self.outputs else PROBABILITIES

    @property
    def computed(self) -> tuple[str, ...]:
        """Outputs that the graph computes; classes and labels follow from them."""
        return (self.predicted,) if self.gates is None else (self.predicted, GATE_MEANS)

    @property
    def positions(self) -> int:
        """Number of values of an image in `gate_maps`."""
        return sum(one.height * one.width for one in self.maps)

    @model_validator(mode="after")
    def _fits_its_input(self) -> Self:
        if self.is_table != (self.format == TABLES) or self.is_table != (self.target is not None):
            raise ValueError(f"tables alone have format {TABLES} and a target")
        if self.is_table and (self.pictures or self.maps):
            raise ValueError("a table has neither a conversion of images nor maps")
        if self.pictures and PICTURE not in self.files:
            raise ValueError(f"it takes image files, and {PICTURE} is not among the files")
        if self.predicted == VALUE and (self.labels or self.temperature is not None):
            raise ValueError("a regression has neither labels nor a temperature")
        if self.predicted == PROBABILITIES and (not self.labels or LABELS not in self.files):
            raise ValueError(f"classes need labels, and {LABELS} among the files")
        if self.multi_label and self.predicted == VALUE:
            raise ValueError("a regression has no classes")
        return self

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        expected = {VALUE: Tensor(dtype="float32", shape=(None, 1))}
        if self.predicted == PROBABILITIES:
            expected = {
                PROBABILITIES: Tensor(dtype="float32", shape=(None, len(self.labels))),
                CLASS_ID: Tensor(dtype="int64", shape=(None,)),
                LABEL: Tensor(dtype="string", shape=(None,)),
            }
        if self.gates is not None:
            expected[GATE_MEANS] = Tensor(dtype="float32", shape=(None, len(self.gates)))
        if missing := set(self.computed) - self.outputs.keys():
            raise ValueError(f"the output {' and '.join(sorted(missing))} is missing")
        for name, found in self.outputs.items():
            if name not in expected:
                raise ValueError(f"there is no output {name!r}. There are: {', '.join(expected)}")
            if found != expected[name]:
                counts = {
                    PROBABILITIES: f", as the number of labels is {len(self.labels)}",
                    GATE_MEANS: f", as the number of gates is {len(self.gates or ())}",
                }
                raise ValueError(
                    f"the output {name} is {found.dtype} {in_brackets(found.shape)}, but must be "
                    f"{expected[name].dtype} {in_brackets(expected[name].shape)}{counts.get(name, '')}"
                )
        if self.parity.saved_model is None:
            raise ValueError("the parity of the SavedModel is missing")
        if others := {one.layer for one in self.maps} - set(self.gates or ()):
            raise ValueError(f"maps are of layers among the gates, and {', '.join(sorted(others))} is not")
        return self

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, FileRecord]) -> dict[str, FileRecord]:
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or name != str(path):
                raise ValueError(f"files must be inside the folder. Received: {name}")
        if NAME in files or signature.NAME in files:
            raise ValueError(f"{NAME} and its signature cannot be among the files")
        if ONNX not in files:
            raise ValueError(f"{ONNX} must be among the files")
        return files


def read(folder: Path, trusted: Sequence[bytes] = ()) -> Manifest:
    """Reads the manifest of a version.

    Args:
        folder: the version.
        trusted: public keys, one of which must have signed it; without any, it may be unsigned.

    Returns:
        The manifest; the other files are not checked (see `serving.files.verify`).

    Raises:
        ModelError: it is missing, damaged, of a later format, or not signed as required.

    Example:
        labels = read(Path("models/demo/1")).labels
    """
    path = folder / NAME
    try:
        content = regular_files.read(path, signature.MANIFEST)
    except FileNotFoundError:
        raise ModelError(
            f"{folder} is not a model version: it has no {NAME}. Make one with `highway export`."
        ) from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    if trusted:
        signature.check(folder, content, trusted)
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        if first["loc"] == ("format",) and isinstance(first["input"], int):
            known = " and ".join(str(number) for number in get_args(Format))
            raise ModelError(
                f"{path} has format {first['input']}, this program reads formats {known}. Update it, or export again."
            ) from error
        raise ModelError(f"{path} {damage(error)}. {again(path)}.") from error

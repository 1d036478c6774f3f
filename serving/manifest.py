"""`manifest.json`: what is in a model version, where it came from, and what was measured when it was written.

A version folder is a TensorFlow SavedModel with files beside it:

    saved_model.pb, variables/, ...  the SavedModel, signatures `serving_default` and `serving_bytes`
    assets.extra/                    requests with which TF Serving warms it up
    model.onnx                       the function of `serving_default` for ONNX Runtime
    model.int8.onnx                  the same with products of whole numbers, if it was asked for
    picture.onnx                     from a picture of any size to the input of `model.onnx`
    labels.txt                       names of the classes, one a line, by index
    parity.npz                       pictures, and what the Keras model gives for them
    manifest.json                    a `Manifest`
    manifest.json.sig                a signature of it, if it was signed; see `serving.signature`

`serving_default` takes `image`: uint8 `[batch, height, width, channels]`; `serving_bytes` takes `image_bytes`: strings
`[batch]`, PNG or JPEG files of any size. Both give `probabilities`, float32 `[batch, classes]`; `class_id`, int64
`[batch]`; `label`, strings `[batch]`; and `gate_means`, float32 `[batch, layers]`, if they were asked for.
`picture.onnx` takes `rgba`: uint8 `[height, width, 4]`, and gives `image`. Preprocessing is inside the graphs.

`format` rises when an older reader would read a manifest wrongly. Fields it does not know, a reader leaves alone.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from serving import regular, signature
from serving.errors import ModelError

NAME = "manifest.json"
ONNX = "model.onnx"
INT8 = "model.int8.onnx"
PICTURE = "picture.onnx"
LABELS = "labels.txt"
REFERENCE = "parity.npz"
WARMUP = "assets.extra/tf_serving_warmup_requests"
SIGNATURE = "serving_default"
SIGNATURE_FILES = "serving_bytes"
INPUT = "image"
ENCODED = "image_bytes"
RGBA = "rgba"
PROBABILITIES = "probabilities"
CLASS_ID = "class_id"
LABEL = "label"
GATE_MEANS = "gate_means"

PictureKind = Literal["digit", "natural"]

Format = Literal[1]
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True, allow_inf_nan=False)


class Tensor(_Part):
    """One input or output of the graph."""

    dtype: Literal["uint8", "float32", "int64", "string"]
    """Type of an element."""
    shape: tuple[int | None, ...]
    """Its sizes; null is the batch, of any size."""


class Input(Tensor):
    """The picture batch."""

    name: str = INPUT
    """Of the input, in both forms of the model."""
    dtype: Literal["uint8"] = "uint8"
    """Pixels as they are in the file, 0 to 255."""
    shape: tuple[None, int, int, int]
    """Batch, height, width, channels."""
    colour: Literal["grey", "rgb"]
    """What the channels are: one of grey, or red, green and blue."""


class Net(_Part):
    """The net inside."""

    preset: str
    """Preset of `highway_keras`; a twin ends in _plain or _residual."""
    overrides: dict[str, Any]
    """What differs from the preset."""
    parameters: Count
    """Trained weights."""
    weights: Literal["final", "best"]
    """Those after the last step, or those of the epoch with the highest validation accuracy."""


class Training(_Part):
    """The run that the weights come from."""

    name: str
    """Name of the run directory."""
    config: dict[str, Any]
    """Everything that decided what it computed."""
    data: dict[str, Any]
    """Name, version and example counts of the data it was trained on."""
    commit: str | None
    """Of the code, with "+" at the end if tracked files differed; null where it ran from an installed package."""
    backend: str
    """Keras backend it was trained on."""
    precision: str
    """Keras dtype policy it was trained under; what is exported is float32 always."""
    versions: dict[str, str]
    """Of Python and the packages it was trained with."""
    steps: Count
    """Training steps."""
    seconds: float
    """Wall time of training."""
    metrics: dict[str, float]
    """After the last epoch, on training and validation data."""
    test: dict[str, Any] | None
    """Result on the test split; null if the run had not been evaluated."""


class Agreement(_Part):
    """Two forms of a model on the same pictures."""

    max_abs_difference: float
    """Largest absolute difference of two probabilities."""
    same_label: Count
    """Pictures that both give the same class."""
    ties: Count
    """Pictures given different classes whose two most probable ones lie closer than twice the tolerance."""
    gate_means: float | None = None
    """Largest absolute difference of the mean gate of a layer; null if the graph does not give it."""


class Files(Agreement):
    """Pictures as people have them, through both ways: `serving_bytes`, and `picture.onnx` before `model.onnx`."""

    images: Count
    """How many pictures."""
    tolerance: float
    """Largest absolute difference of a probability that is let pass."""
    pixels: float
    """Largest difference of a pixel that the net sees, of 255."""


class Speed(_Part):
    """Median time of a call in ONNX Runtime with one thread, both nets in turn."""

    batch: Count
    """Pictures in a call."""
    float32_ms: float
    """Of `model.onnx`, milliseconds."""
    int8_ms: float
    """Of `model.int8.onnx`, milliseconds."""


class Int8(_Part):
    """What `model.int8.onnx` costs and gains, measured when it was written."""

    calibration: Count
    """Pictures of the training split that its ranges are from."""
    split: str
    """Split that accuracy was measured on; never the test split."""
    images: Count
    """How many pictures of it."""
    float32_accuracy: float
    """Share of them that `model.onnx` gets right."""
    int8_accuracy: float
    """Share that `model.int8.onnx` gets right."""
    same_label: Count
    """Pictures that both give the same class."""
    max_abs_difference: float
    """Largest absolute difference of a probability."""
    speed: tuple[Speed, ...]
    """For some sizes of batches."""
    cpu: str
    """What it was measured on, with the features that matter."""


class Parity(_Part):
    """How far the written files are from the Keras model, measured on real pictures after writing."""

    split: str
    """Split of the training run's data that the pictures are from; never its test split."""
    images: Count
    """How many pictures."""
    batch_sizes: tuple[int, ...]
    """Sizes of the batches they were given in."""
    tolerance: float
    """Largest absolute difference that is let pass."""
    saved_model: Agreement
    """SavedModel, loaded back from disk, against the Keras model in float32."""
    onnx: Agreement
    """ONNX Runtime, loaded back from disk, against the Keras model in float32."""
    other_forms: dict[str, Agreement] = Field(default={}, exclude_if=lambda forms: not forms)
    """Further forms against the Keras model in float32, by their key; left out of the file if there are none."""
    files: Files | None = None
    """`serving_bytes`, and `picture.onnx` before `model.onnx`, against Keras; null in versions without them."""
    precision: Agreement | None
    """Keras model in the precision it was trained in against float32, for information; null if that is float32."""

    @property
    def forms(self) -> dict[str, Agreement]:
        """Every form against the Keras model, by its key."""
        return {"saved_model": self.saved_model, "onnx": self.onnx, **self.other_forms}


class File(_Part):
    """One file of the version."""

    size: Count
    """Bytes."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Digest of the content."""


class Manifest(_Part):
    """Everything about one model version."""

    format: Format = 1
    """Of this file."""
    name: str
    """Of the model."""
    version: Annotated[int, Field(ge=1)]
    """Of the model; the name of its folder."""
    created: str
    """ISO 8601, UTC."""
    input: Input
    """The one input."""
    outputs: dict[str, Tensor]
    """By name."""
    labels: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of the classes, by index."""
    pictures: PictureKind | None = None
    """How a picture of any size becomes an input: as MNIST's digits, or as the middle of a photograph; null in versions
    that were exported before they could."""
    gates: tuple[str, ...] | None = None
    """Highway layers in the order of `gate_means`; null if the graphs do not give it."""
    preprocess: dict[str, Any]
    """Settings of what the graph does to the pixels first: scale, contrast, mean."""
    model: Net
    """The net."""
    run: Training
    """Where the weights come from."""
    opset: int
    """Of `model.onnx`."""
    versions: dict[str, str]
    """Of Python and the packages that wrote the files."""
    parity: Parity
    """What was measured after writing."""
    int8: Int8 | None = None
    """Of the int8 form; null if there is none."""
    files: dict[str, File]
    """Every other file of the folder, by its path in it."""

    @property
    def computed(self) -> tuple[str, ...]:
        """Outputs that have to be computed; the class and its name follow from them."""
        return (PROBABILITIES,) if self.gates is None else (PROBABILITIES, GATE_MEANS)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        """Whoever predicts relies on it: a class without a name would be an error in the middle of an answer."""
        if self.input.name != INPUT or min(self.input.shape[1:]) < 1:
            raise ValueError(f"the input must be {INPUT!r}, of at least one pixel")
        if self.input.shape[3] != {"grey": 1, "rgb": 3}[self.input.colour]:
            raise ValueError(f"{self.input.shape[3]} channels are not {self.input.colour}")
        if self.pictures and PICTURE not in self.files:
            raise ValueError(f"it takes picture files, and {PICTURE} is not among the files")
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
                raise ValueError(
                    f"{name} is {found.dtype} {list(found.shape)}, and {len(self.labels)} labels and "
                    f"{len(self.gates or ())} gates make it {expected[name].dtype} {list(expected[name].shape)}"
                )
        return self

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, File]) -> dict[str, File]:
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or name != str(path):
                raise ValueError(f"file names must lie inside the folder. Received: {name}")
        if NAME in files or signature.NAME in files:
            raise ValueError(f"{NAME} and its signature cannot be among the files")
        if missing := {ONNX, LABELS} - files.keys():
            raise ValueError(f"{' and '.join(sorted(missing))} must be among the files")
        return files


def read(folder: Path, trusted: Sequence[bytes] = ()) -> Manifest:
    """Reads the manifest of a version.

    Args:
        folder: the version.
        trusted: public keys, one of which must have signed it; none takes it unsigned too.

    Returns:
        What it says; the files themselves are not looked at (see `serving.files.verify`).

    Raises:
        ModelError: if there is none, or it is damaged, of a later format, or not signed as it must be.

    Example:
        labels = read(Path("models/demo/1")).labels
    """
    path = folder / NAME
    try:
        content = regular.read(path, signature.MANIFEST)
    except FileNotFoundError:
        raise ModelError(f"{folder} is no model version: it has no {NAME}. Make one with `highway export`.") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    if trusted:
        signature.check(folder, content, trusted)
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        if first["loc"] == ("format",) and isinstance(first["input"], int):
            known = ", ".join(str(number) for number in get_args(Format))
            raise ModelError(
                f"{path} has format {first['input']}, this program reads format {known}. Update it, or export again."
            ) from error
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ModelError(f"{path} is damaged: {where}: {first['msg']}. Export the model again.") from error

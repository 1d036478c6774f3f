"""The run directory: everything needed to repeat, resume, analyse or export a run, and nothing else.

    config.json      the resolved configuration
    run.json         state, data, code, machine and result of the run (`Record`)
    preprocess.npz   the fitted preprocessing
    initial.keras    the net before the first step, if it starts from the weights of another net
    metrics.csv      one row per epoch
    tensorboard/     the same for TensorBoard
    watched.csv      the probe of a study: one row of measurements per probed step
    checkpoint/      the training state and, until the end of training, the previous one
    best.keras       the net of the epoch with the highest validation accuracy (for other tasks: the lowest validation
                     loss without label smoothing and penalties), if there is validation
    model.keras      the net after the last step
    evaluation.json  the result on the test split, once evaluated
    measured.npz     the measurements of a study on the trained net
    pruning.csv      for a pruned net: its scores while more and more layers were closed
    figures/         plots
    report.md        one-page report of the run

Only `load_model` imports a framework.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from pipelines.core import guard, user_code
from pipelines.core.config import Config
from pipelines.core.console import next_command
from pipelines.core.errors import UserError, nearest
from pipelines.core.files import file_lock, flush, folder_beside, write_text
from pipelines.core.frozen import Frozen, read
from pipelines.core.url import Url

Weights = Literal["final", "best"]
FILES: dict[Weights, str] = {"final": "model.keras", "best": "best.keras"}
INITIAL, MEASURED = "initial.keras", "measured.npz"
BUSY = "another process is training in {run}. Wait for it, or train in another folder with --run DIR."


class TableColumn(Frozen):
    """A column of a table of numbers."""

    name: str
    """Name of the column."""
    categories: tuple[str, ...] | None = None
    """Names of the categories, by index; None for a column of numbers."""
    missing: bool = False
    """True if the training rows lack some numbers; the net then has an input that marks missing ones."""
    date: Literal["day", "time"] | None = Field(None, exclude_if=lambda date: date is None)
    """Kind of dates, whose numbers are days since 1970: without or with a time of day; left out for anything else."""

    @property
    def inputs(self) -> int:
        """Number of inputs of the net that stand for it."""
        return 1 + self.missing if self.categories is None else len(self.categories)


class DataRecord(Frozen):
    """The training data (the fields of `pipelines.data.sources.DataInfo`)."""

    name: str
    """Name of the data set."""
    version: str
    """Version of the data set."""
    shape: tuple[int, ...]
    """Height, width and channels of an image, or the length of a vector."""
    labels: tuple[str, ...]
    """Names of the classes, by index; empty for regression."""
    counts: dict[str, int]
    """Number of examples in each split; validation examples are not counted as training examples."""
    columns: tuple[TableColumn, ...] = Field((), exclude_if=lambda columns: not columns)
    """Columns of a table of numbers; left out of the file for other data."""
    target: str | None = Field(None, exclude_if=lambda target: target is None)
    """Column of a table of numbers that is predicted; left out of the file for other data."""
    multi_label: bool = Field(False, exclude_if=lambda multi_label: not multi_label)
    """True if an example may belong to any number of classes; left out of the file otherwise."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of an input of the net."""
        return net_inputs(self.shape, self.columns)


def net_inputs(shape: tuple[int, ...], columns: Sequence[TableColumn]) -> tuple[int, ...]:
    """Returns the shape of an input of the net: that of an example, unless the columns of a table are encoded.

    Args:
        shape: shape of an image, or length of a vector.
        columns: columns of a table; none for other data.
    """
    return (sum(column.inputs for column in columns),) if columns else shape


class Machine(Frozen):
    """The hardware of a run."""

    cpu: str
    """Model name of the processor."""
    cpu_features: tuple[str, ...]
    """Its instruction sets that affect the speed of nets."""
    cores: int
    """Number of cores available to the process."""
    accelerators: tuple[str, ...]
    """Names of the accelerators that the backend found."""


class Code(Frozen):
    """The code of a run."""

    commit: str
    """Hash of the commit."""
    dirty: bool
    """Whether tracked files had changed."""


class Precision(Frozen):
    """The number format of a run."""

    policy: Literal["float32", "mixed_bfloat16", "mixed_float16"]
    """Keras dtype policy."""
    reason: str
    """The reason for this choice."""


class Start(Frozen):
    """A start of a run, or its continuation."""

    step: int
    """Steps done before."""
    devices: int
    """Number of devices that each batch is divided among, in all processes."""
    processes: int
    """Number of processes that train the run together."""


class Pruned(Frozen):
    """Origin of a pruned net: that of another run, some of whose highway layers were removed."""

    source: str
    """Name of the other run."""
    weights: Weights
    """Its weights."""
    layers: int
    """Number of its highway layers."""
    parameters: int
    """Number of its trainable weights."""
    removed: tuple[str, ...]
    """Names of those that were removed."""
    split: Literal["train", "validation"]
    """Split on which they were chosen."""
    examples: int
    """Number of examples read from it."""
    tolerance: float
    """Largest change for the worse that was allowed: of the accuracy, or of the loss in proportion to it."""
    before: dict[str, float]
    """Scores of the whole net on these examples, such as loss and accuracy."""
    after: dict[str, float]
    """Scores without the layers."""


class Record(Frozen):
    """The record of a run, in addition to its configuration; stored in run.json."""

    state: Literal["running", "finished", "diverged"] = "running"
    """State of the run. A killed run stays "running" and can be resumed."""
    created: str
    """Time of creation, ISO 8601, UTC."""
    command: str
    """The command line."""
    versions: dict[str, str]
    """Versions of Python and of each package that affects the result."""
    backend: str
    """Keras backend."""
    code: Code | None
    """The commit, if the code runs from a checkout."""
    machine: Machine
    """The hardware."""
    precision: Precision
    """The number format and its reason."""
    devices: int | None = None
    """Number of devices that each batch is divided among, which affects rounding; None in runs of earlier versions."""
    starts: tuple[Start, ...] = Field((), exclude_if=lambda starts: not starts)
    """Every start since devices or processes were asked for; left out of the file for other runs."""
    trained: bool = Field(False, exclude_if=lambda trained: not trained)
    """True while one process finishes a run that several have trained; left out of the file otherwise."""
    data: DataRecord
    """The data."""
    parameters: int
    """Number of trainable weights of the net."""
    steps_per_epoch: int
    """Training examples over batch size, rounded down."""
    step: int = 0
    """Steps done at the end of the last epoch or at the last checkpoint; all steps once it is finished."""
    seconds: float = 0.0
    """Wall time of training so far, including validation and checkpoints."""
    gates: dict[str, float] = Field(default_factory=dict)
    """Mean transform gate of each highway layer before training; metrics.csv has the means after each epoch."""
    metrics: dict[str, float] = Field(default_factory=dict)
    """The last row of metrics.csv (loss, accuracy or mae, in training and validation), and the best epoch."""
    pruned: Pruned | None = Field(None, exclude_if=lambda pruned: pruned is None)
    """Origin of a pruned net; left out of the file for nets that were only trained."""


@dataclass
class Run:
    """An open run directory.

    Args:
        path: the folder.
        config: the resolved configuration.
        record: the content of run.json; only `update` changes it.
        writes: whether this process writes files; of several that train a run together, only the first does.
    """

    path: Path
    config: Config
    record: Record
    writes: bool = True

    def update(self, **changes: Any) -> None:
        """Changes fields of the record, in memory and on disk."""
        self.record = Record.model_validate({**self.record.model_dump(), **changes})
        if self.writes:
            write_text(self.path / "run.json", self.record.model_dump_json(indent=2) + "\n")


def create(path: Path, config: Config, record: Record) -> Run:
    """Creates a run directory atomically.

    Args:
        path: the folder to create; nothing may be there.
        config: the resolved configuration.
        record: the record at the start of the run.

    Returns:
        The run.

    Raises:
        UserError: the path exists already, and a run is never overwritten.

    Example:
        run = create(Path("runs/mnist_conv_32"), config, record)
    """
    refuse_existing(path)
    beside = folder_beside(path)
    try:
        aside = beside / "new"
        aside.mkdir()
        write_text(aside / "config.json", config.model_dump_json(indent=2) + "\n")
        Run(aside, config, record).update()
        try:
            # A rename replaces only an empty folder, so that of two processes one fails.
            aside.rename(path)
        except OSError as error:
            refuse_existing(path)
            raise UserError(
                f"the run directory {path} cannot be created: {error.strerror}. Name another folder with --run DIR."
            ) from error
        flush(path.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Run(path, config, record)


def refuse_existing(path: Path | Url, options: Sequence[str] = ()) -> None:
    """Raises a `UserError` if `path` exists: a run is never overwritten. The message has the options of `resuming`."""
    if path.exists() or (isinstance(path, Path) and path.is_symlink()):
        backend, record = None, path / "run.json"
        with suppress(OSError, UserError):
            backend = read(record, Record).backend
        again = f", or resume the run in it: {resuming(path, options, backend)}" if record.exists() else "."
        raise UserError(
            f"{path} exists already, and a run is never overwritten. Name another folder with --run DIR{again}"
        )


def resuming(
    path: Path | Url, options: Sequence[str] = (), backend: str | None = None, data_dir: Path | None = None
) -> str:
    """Returns the command that resumes a run, for messages.

    Args:
        path: the run directory.
        options: further words of the command.
        backend: Keras backend of the run, which the command names if it is not the default; None for that of this
            process.
        data_dir: folder of prepared data; None for the TFDS default, or if the words name it.

    Example:
        resuming(Path("runs/demo"), ["--devices", "2"])  # "highway train --resume runs/demo --devices 2"
    """
    default = guard.ENVIRONMENT["KERAS_BACKEND"]
    backend = backend or os.environ.get("KERAS_BACKEND", default)
    command = next_command("train", "--resume", path, *options, data_dir=data_dir)
    return command if backend == default else f"KERAS_BACKEND={backend} {command}"


def open_run(path: Path) -> Run:
    """Opens a run directory.

    Args:
        path: the folder.

    Returns:
        The run.

    Raises:
        UserError: the folder is missing or is not a run directory, or one of its two JSON files is damaged.

    Example:
        labels = open_run(Path("runs/mnist_conv_32")).record.data.labels
    """
    if not path.is_dir():
        if close := nearest(path.name, (one.parent.name for one in path.parent.glob("*/run.json"))):
            raise UserError(f"there is no run directory {path}. Did you mean {path.with_name(close)}?")
        raise UserError(f"there is no run directory {path}. Check the path, or create one with `highway train`.")
    if not (path / "config.json").is_file() or not (path / "run.json").is_file():
        raise UserError(
            f"{path} is not a run directory of `highway train`: config.json or run.json is missing. Check the path."
        )
    return Run(path, read(path / "config.json", Config), read(path / "run.json", Record))


def locked(run: Run) -> AbstractContextManager[None]:
    """Locks a run directory for this process until the block ends or the process dies.

    Raises:
        UserError: another process holds the lock.
    """
    return file_lock(run.path / "config.json", BUSY.format(run=run.path))


def load_model(run: Run, weights: Weights = "final") -> Any:
    """Loads the trained net of a run.

    Args:
        run: the run.
        weights: "final" for those after the last step, or "best" for those of the best epoch on validation.

    Returns:
        A `keras.Model`, not compiled, in the precision of its training. Its outputs are logits.

    Raises:
        UserError: the net does not exist (yet), or its file is damaged.

    Example:
        model = load_model(open_run(Path("runs/mnist_conv_32")))
    """
    path, preset = model_file(run, weights), run.config.model.preset
    if user_code.is_function(preset):
        # Its module registers the layers in the file.
        user_code.function(preset)
    return load_file(path)


def load_file(path: Path) -> Any:
    """Loads a net from a `.keras` file; see `load_model`.

    Raises:
        UserError: the file is damaged.
    """
    import keras

    import highway_keras  # noqa: F401  registers the layers by name

    try:
        return keras.saving.load_model(path, compile=False)
    except Exception as error:
        # Keras passes on the errors of zipfile, json, h5py and its own checks.
        short = " ".join(str(error).split())[:200]
        raise UserError(
            f"the model file {path} is damaged or was written by other code ({type(error).__name__}: {short}). "
            "Train again, or restore the file from a copy."
        ) from error


def model_file(run: Run, weights: Weights, data_dir: Path | None = None) -> Path:
    """Returns the path of a run's model file; raises the errors of `load_model`, except for damage.

    The message of an unfinished run names the command that finishes it, with its folder of prepared data.
    """
    path = run.path / FILES[weights]
    if path.is_file():
        return path
    if weights == "best" and not run.record.data.counts.get("validation"):
        raise UserError(f"{run.path} has no best.keras: it was trained without validation. Use --weights final.")
    if run.record.state == "diverged":
        raise UserError(f"{run.path} has no model: its training diverged. Train again with a lower learning rate.")
    if run.record.state == "running":
        command = resuming(run.path, backend=run.record.backend, data_dir=data_dir)
        raise UserError(f"{run.path} is unfinished: there is no {path.name} yet. Finish it with `{command}`.")
    raise UserError(f"{path} is missing although the run is finished. Restore it from a copy, or train again.")

"""A run directory: everything needed to repeat, resume, analyse or export a run, and nothing else.

    config.json      the resolved configuration
    run.json         what is known of the run: state, data, code, machine, result (`Record`)
    preprocess.npz   the fitted preprocessing
    metrics.csv      one row an epoch
    tensorboard/     the same for TensorBoard
    watched.csv      what a study measures on the way through training: one row for each of some steps
    checkpoint/      the state to resume from, one file, and until the end the one before it
    best.keras       the net of the epoch with the highest validation accuracy (of a regression: the lowest loss on
                     validation), where there is validation
    model.keras      the net after the last step
    evaluation.json  the result on the test split, once evaluated
    measured.npz     what a study measures of the trained net
    figures/         plots
    report.md        the run on one page

Importable without a framework; only `load_model` needs one.
"""

import os
import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from pipelines.core.config import Config, Frozen, read
from pipelines.core.errors import UserError
from pipelines.core.files import file_lock, flush, write_text, writing

Weights = Literal["final", "best"]
FILES: dict[Weights, str] = {"final": "model.keras", "best": "best.keras"}
MEASURED = "measured.npz"


class DataRecord(Frozen):
    """The data that a run was trained on, as it was found (the fields of `pipelines.data.sources.DataInfo`)."""

    name: str
    """Name of the data set."""
    version: str
    """Its version."""
    shape: tuple[int, ...]
    """Height, width and channels of an image, or the length of a vector."""
    labels: tuple[str, ...]
    """Names of the classes, by index; none for regression."""
    counts: dict[str, int]
    """Examples in each split, after validation was taken out of training."""


class Machine(Frozen):
    """What a run computed on."""

    cpu: str
    """Model name of the processor."""
    cpu_features: tuple[str, ...]
    """Those of its instruction sets that decide how fast nets are."""
    cores: int
    """Cores that this process may use."""
    accelerators: tuple[str, ...]
    """Names of the accelerators the backend found; empty for none."""


class Code(Frozen):
    """The commit that a run was made with."""

    commit: str
    """Its hash."""
    dirty: bool
    """Whether tracked files differed from it."""


class Precision(Frozen):
    """The number format of a run."""

    policy: Literal["float32", "mixed_bfloat16", "mixed_float16"]
    """Keras dtype policy."""
    reason: str
    """Why this one."""


class Record(Frozen):
    """What is known of a run beside its configuration; kept in run.json."""

    state: Literal["running", "finished", "diverged"] = "running"
    """A run that was killed stays "running", and can be resumed."""
    created: str
    """Time of creation, ISO 8601, UTC."""
    command: str
    """The command line."""
    versions: dict[str, str]
    """Of Python and of each package that decides the result."""
    backend: str
    """Keras backend."""
    code: Code | None
    """The commit, if this code runs from a checkout."""
    machine: Machine
    """The hardware."""
    precision: Precision
    """The number format, and why."""
    data: DataRecord
    """The data."""
    parameters: int
    """Trainable weights of the net."""
    steps_per_epoch: int
    """Training examples over batch size, rounded down."""
    step: int = 0
    """Steps done at the end of the last epoch, or when the run was stopped; all of them once finished."""
    seconds: float = 0.0
    """Wall time spent in training so far, validation and checkpoints included."""
    gates: dict[str, float] = Field(default_factory=dict)
    """Mean transform gate of each highway layer before training; how it goes on is in metrics.csv."""
    metrics: dict[str, float] = Field(default_factory=dict)
    """The last row of metrics.csv: loss, accuracy or mae, the same on validation, and the best epoch of that."""


@dataclass
class Run:
    """An open run directory.

    Args:
        path: the folder.
        config: the resolved configuration it was made with.
        record: the state of run.json; changed by `update` only.
    """

    path: Path
    config: Config
    record: Record

    def update(self, **changes: Any) -> None:
        """Changes fields of the record, in memory and on disk.

        Args:
            **changes: new values of `Record`'s fields.
        """
        self.record = Record.model_validate({**self.record.model_dump(), **changes})
        write_text(self.path / "run.json", self.record.model_dump_json(indent=2) + "\n")


def create(path: Path, config: Config, record: Record) -> Run:
    """Makes a run directory, complete or not at all.

    Args:
        path: the folder to make; nothing may be there.
        config: the resolved configuration.
        record: what is known of the run at its start.

    Returns:
        The run.

    Raises:
        UserError: if something is there already: a run is never overwritten.

    Example:
        run = create(Path("runs/mnist_conv_32"), config, record)
    """
    refuse_existing(path)
    aside = path.parent / f".{path.name}-{os.getpid()}"
    try:
        with writing(path):
            aside.mkdir(parents=True)
        write_text(aside / "config.json", config.model_dump_json(indent=2) + "\n")
        Run(aside, config, record).update()
        try:
            # An empty folder may be replaced, one with anything in it may not: two processes cannot both win.
            aside.rename(path)
        except OSError as error:
            refuse_existing(path)
            raise UserError(f"the run directory {path} could not be made: {error.strerror}.") from error
        flush(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Run(path, config, record)


def refuse_existing(path: Path) -> None:
    """Raises a `UserError` if there is anything at `path`; what is there is never overwritten."""
    if path.exists() or path.is_symlink():
        raise UserError(
            f"{path} exists already, and a run is never overwritten. "
            f"Take another folder with --run DIR, or continue the run in it with --resume {path}."
        )


def open_run(path: Path) -> Run:
    """Opens a run directory.

    Args:
        path: the folder.

    Returns:
        The run.

    Raises:
        UserError: if the folder is missing or no run directory, or if one of its two JSON files is damaged.

    Example:
        labels = open_run(Path("runs/mnist_conv_32")).record.data.labels
    """
    if not path.is_dir():
        raise UserError(f"there is no run directory {path}. Make one with `highway train`, or check the path.")
    if not (path / "config.json").is_file() or not (path / "run.json").is_file():
        raise UserError(f"{path} is no run directory: config.json or run.json is missing. Expected what `train` made.")
    return Run(path, read(path / "config.json", Config), read(path / "run.json", Record))


def locked(run: Run) -> AbstractContextManager[None]:
    """Holds the run directory for this process, until the block ends or the process dies.

    Args:
        run: the run that is about to be written to.

    Raises:
        UserError: if another process holds it.
    """
    return file_lock(
        run.path / "config.json",
        f"another process is training in {run.path}. Wait for it, or train in another folder with --run DIR.",
    )


def load_model(run: Run, weights: Weights = "final") -> Any:
    """The trained net of a run.

    Args:
        run: the run.
        weights: "final", after the last step; or "best", of the epoch that did best on validation.

    Returns:
        A `keras.Model`, not compiled, in the precision it was trained in. Its outputs are logits.

    Raises:
        UserError: if there is no such net (yet), or its file is damaged.

    Example:
        model = load_model(open_run(Path("runs/mnist_conv_32")))
    """
    path = model_file(run, weights)
    import keras

    import highway_keras  # noqa: F401  registers the layers by name

    try:
        return keras.saving.load_model(path, compile=False)
    except Exception as error:
        # Keras lets whatever zipfile, json, h5py or its own checks raise come through.
        raise UserError(
            f"the model file {path} is damaged or was written by other code ({type(error).__name__}: {_short(error)}). "
            "Train again, or restore the file from a copy."
        ) from error


def model_file(run: Run, weights: Weights) -> Path:
    """The path of a run's model file, without loading it; errors as `load_model`, short of damage."""
    path = run.path / FILES[weights]
    if path.is_file():
        return path
    if weights == "best" and not run.record.data.counts.get("validation"):
        raise UserError(f"{run.path} has no best.keras: it was trained without validation. Take --weights final.")
    if run.record.state == "diverged":
        raise UserError(f"{run.path} has no model: its training diverged. Train again with a lower learning rate.")
    if run.record.state == "running":
        raise UserError(f"{run.path} is unfinished: there is no {path.name} yet. Finish it with --resume {run.path}.")
    raise UserError(f"{path} is missing, although the run is finished. Restore it from a copy, or train again.")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]

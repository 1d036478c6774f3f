"""tensorboard/: the rows of metrics.csv and steps.csv as curves, in one folder for training and one for validation."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import tensorflow as tf

# That of `tf.summary`, which would import it with the first number: during training, while other processes wait.
from tensorboard.summary.v2 import scalar

from pipelines.training.metrics_file import Row

VALIDATION = "val_"
# Maximum number of curves of mean gates. Hundreds of them slow down every epoch, and are indistinguishable.
GATES = 100
# Columns that give positions on an axis, not values.
AXES = ("epoch", "step", "seconds")


class TensorBoardLog:
    """Writes event files for TensorBoard, with the same names as Keras's callback.

    That callback buffers events for up to two minutes, which are lost if the process is killed, and repeats the events
    of epochs that are trained again. Here each epoch is on disk when it ends, and all rows are rewritten on resuming.

    Args:
        folder: folder of the event files; its content is replaced.
        rows: rows of metrics.csv so far.
        steps: rows of steps.csv so far.

    Example:
        with TensorBoardLog(run.path / "tensorboard", metrics_file.read(run.path / "metrics.csv")) as log:
            log.add(row)
    """

    def __init__(self, folder: Path, rows: Sequence[Row], steps: Sequence[Row] = ()) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self.folder = folder
        self.writers: dict[str, Any] = {}
        for row in rows:
            self.add(row)
        for row in steps:
            self.add_step(row)

    def __enter__(self) -> "TensorBoardLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self.writers.values():
            writer.close()

    def add(self, row: Row) -> None:
        """Writes the values of an epoch.

        Args:
            row: values by column of metrics.csv.
        """
        values = {name: value for name, value in row.items() if name not in AXES}
        gates = [name for name in values if name.startswith("gate/")]
        for name in gates if len(gates) > GATES else ():
            del values[name]
        for name, value in values.items():
            writer = self._writer("validation" if name.startswith(VALIDATION) else "train")
            with writer.as_default(step=int(row["epoch"]) - 1):
                scalar(f"epoch_{name.removeprefix(VALIDATION)}", value)
        for writer in self.writers.values():
            writer.flush()

    def add_step(self, row: Row) -> None:
        """Writes the values of a step within an epoch.

        Args:
            row: values by column of steps.csv.
        """
        writer = self._writer("train")
        with writer.as_default(step=int(row["step"])):
            for name, value in row.items():
                if name not in AXES:
                    scalar(f"batch_{name}", value)
        writer.flush()

    def _writer(self, part: str) -> Any:
        if part not in self.writers:
            self.writers[part] = tf.summary.create_file_writer(str(self.folder / part))
        return self.writers[part]

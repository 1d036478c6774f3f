"""What the manifest of a version says."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.core import environment
from pipelines.core.run import Run, Weights
from pipelines.export.artefacts import OPSET
from pipelines.training import evaluation
from pipelines.training.evaluation import Evaluation
from serving import files
from serving.manifest import (
    CLASS_ID,
    GATE_MEANS,
    LABEL,
    PROBABILITIES,
    Input,
    Int8,
    Manifest,
    Net,
    Parity,
    PictureKind,
    Tensor,
    Training,
)  # fmt: skip

PACKAGES = ("highway-keras", "keras", "tensorflow", "tensorflow-cpu", "tf2onnx", "onnx", "onnxruntime")
# By the number of channels.
COLOURS = {1: "grey", 3: "rgb"}


@dataclass(frozen=True)
class Written:
    """What is in a version, and was measured on it."""

    pictures: PictureKind
    """How pictures of any size become inputs."""
    gates: tuple[str, ...] | None
    """Highway layers whose mean gate the graphs give."""
    parity: Parity
    """Of all forms."""
    int8: Int8 | None
    """Of the int8 form, if there is one."""


def describe(run: Run, weights: Weights, version: int, folder: Path, written: Written) -> Manifest:
    """Puts together the manifest of a version whose files are written. No path of this machine gets into it.

    Args:
        run: where the weights come from.
        weights: which of the run's weights.
        version: its number.
        folder: with all files but the manifest; lies in the model's folder, whose name is the model's.
        written: what is in them, and was measured.

    Returns:
        The manifest.
    """
    data, config = run.record.data, run.config
    outputs = {
        PROBABILITIES: Tensor(dtype="float32", shape=(None, len(data.labels))),
        CLASS_ID: Tensor(dtype="int64", shape=(None,)),
        LABEL: Tensor(dtype="string", shape=(None,)),
    }
    if written.gates is not None:
        outputs[GATE_MEANS] = Tensor(dtype="float32", shape=(None, len(written.gates)))
    return Manifest(
        name=folder.resolve().parent.name,
        version=version,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        input=Input(shape=(None, *data.shape), colour=COLOURS[data.shape[2]]),
        outputs=outputs,
        labels=data.labels,
        pictures=written.pictures,
        gates=written.gates,
        preprocess=config.preprocess.model_dump(),
        model=Net(
            preset=config.model.preset,
            overrides=config.model.model_dump(exclude={"preset"}, exclude_none=True),
            parameters=run.record.parameters,
            weights=weights,
        ),
        run=_training(run, weights),
        opset=OPSET,
        versions=environment.versions(PACKAGES),
        parity=written.parity,
        int8=written.int8,
        files=files.digests(folder),
    )


def _training(run: Run, weights: Weights) -> Training:
    record = run.record
    config = run.config.model_dump(mode="json")
    if os.sep in run.config.data:
        config["data"] = record.data.name  # it may be a folder of this machine
    return Training(
        name=run.path.resolve().name,
        config=config,
        data=record.data.model_dump(mode="json", include={"name", "version", "counts"}),
        commit=record.code.commit + "+" * record.code.dirty if record.code else None,
        backend=record.backend,
        precision=record.precision.policy,
        versions=record.versions,
        steps=record.step,
        seconds=record.seconds,
        metrics=record.metrics,
        test=_test(run.path / "evaluation.json", weights),
    )


def _test(path: Path, weights: Weights) -> dict[str, Any] | None:
    """What was measured on the test split, short of single classes, if it was and of these weights."""
    found = evaluation.read(path, Evaluation)
    if found is None or found.weights != weights:
        return None
    return found.model_dump(mode="json", exclude={"weights", "classes", "confusion"})

"""What the manifest of a version says."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines import environment, evaluation
from pipelines.evaluation import Evaluation
from pipelines.exporting.artefacts import OPSET
from pipelines.run import Run, Weights
from serving import files
from serving.manifest import CLASS_ID, PROBABILITIES, Input, Manifest, Net, Parity, Tensor, Training

PACKAGES = ("highway-keras", "keras", "tensorflow", "tensorflow-cpu", "tf2onnx", "onnx", "onnxruntime")
# By the number of channels.
COLOURS = {1: "grey", 3: "rgb"}


def describe(run: Run, weights: Weights, version: int, folder: Path, parity: Parity) -> Manifest:
    """Puts together the manifest of a version whose files are written. No path of this machine gets into it.

    Args:
        run: where the weights come from.
        weights: which of the run's weights.
        version: its number.
        folder: with all files but the manifest; lies in the model's folder, whose name is the model's.
        parity: what was measured on them.

    Returns:
        The manifest.
    """
    data, config = run.record.data, run.config
    classes = len(data.labels)
    return Manifest(
        name=folder.resolve().parent.name,
        version=version,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        input=Input(shape=(None, *data.shape), colour=COLOURS[data.shape[2]]),
        outputs={
            PROBABILITIES: Tensor(dtype="float32", shape=(None, classes)),
            CLASS_ID: Tensor(dtype="int64", shape=(None,)),
        },
        labels=data.labels,
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
        parity=parity,
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

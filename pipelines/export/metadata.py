"""The manifest of a version."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.core import environment
from pipelines.core.run import DataRecord, Run, Weights
from pipelines.export.onnx_model import OPSET
from pipelines.training import evaluation
from pipelines.training.evaluation import AnyEvaluation
from serving import files
from serving.inputs import Column, Input, RowInput, Tensor
from serving.manifest import (
    CLASS_ID,
    GATE_MEANS,
    LABEL,
    PROBABILITIES,
    TABLES,
    VALUE,
    ConversionKind,
    GateMap,
    Manifest,
    NetRecord,
    TrainingRecord,
)
from serving.measurements import Parity

PACKAGES = ("highway-keras", "keras", "tensorflow", "tensorflow-cpu", "tf2onnx", "onnx", "onnxruntime")
# Colour format by number of channels.
COLOURS = {1: "grey", 3: "rgb"}
# Name of the target of vectors that have no names.
TARGET = "target"


def describe(
    run: Run,
    weights: Weights,
    version: int,
    folder: Path,
    *,
    test: dict[str, Any] | None,
    kind: ConversionKind | None,
    gates: tuple[str, ...] | None,
    maps: tuple[GateMap, ...],
    temperature: float | None,
    parity: Parity,
    sections: Mapping[str, Any],
) -> Manifest:
    """Builds the manifest of a version whose files are already written. It contains no path of this machine.

    Args:
        run: the run that the weights come from.
        weights: which of the run's weights.
        version: number of the version.
        folder: folder with all files except the manifest, inside the model's folder, which has the model's name.
        test: the result of `test_result`.
        kind: how images of any size become inputs; None for rows of a table.
        gates: highway layers in the order of the gate means; None if the graphs do not return them.
        maps: layers whose maps of gates the ONNX graph returns.
        temperature: number by which the graphs divide the logits, if they do.
        parity: measured parity of all forms.
        sections: sections that forms add about themselves, by key of the form.

    Returns:
        The manifest.
    """
    data, config = run.record.data, run.config
    outputs = {VALUE: Tensor(dtype="float32", shape=(None, 1))}
    if data.labels:
        outputs = {
            PROBABILITIES: Tensor(dtype="float32", shape=(None, len(data.labels))),
            CLASS_ID: Tensor(dtype="int64", shape=(None,)),
            LABEL: Tensor(dtype="string", shape=(None,)),
        }
    if gates is not None:
        outputs[GATE_MEANS] = Tensor(dtype="float32", shape=(None, len(gates)))
    return Manifest(
        format=1 if kind else TABLES,
        name=folder.resolve().parent.name,
        version=version,
        created=environment.now(),
        input=taken(data),
        outputs=outputs,
        labels=data.labels,
        multi_label=data.multi_label,
        target=None if kind else data.target or TARGET,
        pictures=kind,
        gates=gates,
        maps=maps,
        temperature=temperature,
        preprocess=config.preprocess.model_dump(),
        model=NetRecord(
            preset=config.model.preset,
            overrides=config.model.model_dump(exclude={"preset", "whitened"}, exclude_none=True),
            parameters=run.record.parameters,
            weights=weights,
        ),
        run=_training(run, test),
        opset=OPSET,
        versions=environment.versions(PACKAGES),
        parity=parity,
        files=files.digests(folder),
        **sections,
    )


def taken(data: DataRecord) -> Input | RowInput:
    """Describes the input of a net by the data that it was trained on; vectors have numbers for names.

    Args:
        data: the data.
    """
    if len(data.shape) > 1:
        return Input(shape=(None, *data.shape), colour=COLOURS[data.shape[2]])
    columns = tuple(Column(name=column.name, categories=column.categories, date=column.date) for column in data.columns)
    numbers = tuple(Column(name=str(number), categories=None) for number in range(data.shape[0]))
    return RowInput(shape=(None, *data.shape), columns=columns or numbers)


def test_result(run: Run, weights: Weights, *, calibrated: bool) -> dict[str, Any] | None:
    """Reads the result on the test split, without the results per class; None if these weights were not evaluated.

    Args:
        run: the run.
        weights: which of its weights.
        calibrated: whether the logits are divided by a temperature. Loss and calibration error, which are those of
            other probabilities, are left out then.

    Raises:
        UserError: the file is damaged.
    """
    found: AnyEvaluation | None = evaluation.of_run(run)
    if found is None or found.weights != weights:
        return None
    left_out = {"weights", "classes", "confusion", "mirrored", *(("loss", "calibration_error") if calibrated else ())}
    return found.model_dump(mode="json", exclude=left_out)


def _training(run: Run, test: dict[str, Any] | None) -> TrainingRecord:
    record = run.record
    config = run.config.model_dump(mode="json")
    if os.sep in run.config.data:
        config["data"] = record.data.name  # instead of a folder of this machine
    return TrainingRecord(
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
        test=test,
        pruned=record.pruned.model_dump(mode="json") if record.pruned else None,
    )

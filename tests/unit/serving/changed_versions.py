"""Versions that are changed after they were made, with digests that fit."""

import json

import numpy as np
import onnx

from serving import files, manifest
from serving.engine.backends import InProcessBackend
from serving.engine.settings import Settings
from serving.model import open_model
from tests import tiny_model


def write(folder):
    """Writes a version with everything that an export has."""
    tiny_model.write(folder)
    images = np.random.default_rng(0).integers(0, 256, (6, *tiny_model.SHAPE), dtype="uint8")
    np.savez(
        folder / manifest.REFERENCE, images=images, probabilities=open_model(folder).predict(images)["probabilities"]
    )
    seal(folder)
    return folder


def seal(folder, **changes):
    """Rewrites the manifest, as someone who changed the version on purpose would."""
    path = folder / manifest.NAME
    content = json.loads(path.read_text()) | changes
    content["files"] = {name: file.model_dump() for name, file in files.digests(folder).items()}
    path.write_text(json.dumps(content))


def tried(folder):
    """Opens a version as an endpoint does."""
    return InProcessBackend(Settings(folder.parents[1]), None, lambda _: lambda *_: None).open(folder)


def edit(folder, change, name=manifest.ONNX):
    """Changes the graph in a file of a version."""
    model = onnx.load(folder / name)
    change(model.graph)
    onnx.save(model, folder / name)
    seal(folder)

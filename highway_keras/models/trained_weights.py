"""Trained weights that come with the package."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np

# A model repository; `highway serve` serves it, and its versions have the files that `serving.manifest` describes.
REPOSITORY = Path(__file__).parents[1] / "trained"
WEIGHTS, MANIFEST = "weights.npz", "manifest.json"


def pretrained() -> dict[str, Path]:
    """Lists the presets that come with trained weights.

    Returns:
        The folder of each preset's version, by name of the preset. Its `manifest.json` has the names of the classes,
        the preprocessing, the training and the accuracy.

    Example:
        >>> sorted(pretrained())
        ['cifar100_modern', 'cifar10_modern', 'mnist_conv_32_modern']
    """
    folders = sorted(path.parent for path in REPOSITORY.glob(f"*/*/{MANIFEST}"))
    return {_manifest(folder)["model"]["preset"]: folder for folder in folders}


def load(net: keras.Model, name: str) -> None:
    """Loads the trained weights of a preset into a net; a classifier with another number of classes keeps its own.

    Args:
        net: the net, built from the preset.
        name: name of the preset.

    Raises:
        ValueError: if there are no weights for the preset, they do not fit the net, or the file is damaged.
    """
    folder = pretrained().get(name)
    if folder is None:
        known = ", ".join(pretrained()) or "none"
        raise ValueError(f"There are no trained weights of this preset. Available: {known}. Received: name={name!r}")
    arrays = _arrays(folder)
    weights = {name: weight for layer in net.layers for name, weight in _weights(layer).items()}
    different = {
        name: tuple(weight.shape)
        for name, weight in weights.items()
        if name not in arrays or tuple(weight.shape) != arrays[name].shape
    }
    if different and different.keys() != _weights(net.layers[-1]).keys():
        name, shape = next(iter(different.items()))
        found = f"{arrays[name].shape}" if name in arrays else "missing"
        raise ValueError(
            f"The trained weights do not fit: {name} has the shape {shape}, and theirs is {found}. With weights=True, "
            "all layers but the last must have the shapes of the preset, and the last one as many inputs: choose "
            "another input_shape, or outputs of your own."
        )
    for name in weights.keys() - different.keys():
        weights[name].assign(arrays[name])


def _weights(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns the weights of a layer by path, without the layers and name scopes in which the net was built."""
    return {layer.name + weight.path.removeprefix(layer.path): weight for weight in layer.weights}


def _manifest(folder: Path) -> Any:
    return json.loads((folder / MANIFEST).read_text("utf-8"))


def _arrays(folder: Path) -> dict[str, np.ndarray]:
    content = (folder / WEIGHTS).read_bytes()
    if hashlib.sha256(content).hexdigest() != _manifest(folder)["files"][WEIGHTS]["sha256"]:
        raise ValueError(
            f"{folder / WEIGHTS} is damaged: its SHA-256 is not that of {MANIFEST}. Install highway-keras, which it "
            "belongs to, again (pip install --force-reinstall)."
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return dict(file)

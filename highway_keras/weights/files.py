"""Files of arrays by name: safetensors, PyTorch, HDF5, NumPy."""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = {
    ".safetensors": "safetensors",
    ".pt": "torch",
    ".pth": "torch",
    ".bin": "torch",
    ".h5": "h5py",
    ".hdf5": "h5py",
    ".npz": "numpy",
}
"""The package that reads each kind of file; only the one needed is imported."""


def arrays_of(source: Mapping[str, Any] | str | os.PathLike[str]) -> dict[str, Any]:
    """Reads arrays by name from a file, or copies a mapping of them.

    Args:
        source: path of a `.safetensors`, `.pt`, `.pth`, `.bin` (state dict), `.h5`, `.hdf5` or `.npz` file; or a
            mapping from names to arrays or PyTorch tensors.

    Returns:
        The arrays by name. Names in HDF5 are paths of datasets, without the suffix ":0" of TensorFlow's variables.

    Raises:
        ValueError: if the kind of file is unknown, or it holds something else.
        ImportError: if the package that reads the file is not installed.
    """
    if isinstance(source, Mapping):
        return dict(source)
    path = Path(source)
    package = PACKAGES.get(path.suffix)
    if package is None:
        raise ValueError(
            f"`source` must be a mapping from names to arrays, or a file ending in {', '.join(PACKAGES)}. "
            f"Received: source={str(path)!r}"
        )
    try:
        module = importlib.import_module("safetensors.numpy" if package == "safetensors" else package)
    except ImportError as error:
        raise ImportError(f"Reading '{path.name}' needs the package {package}: pip install {package}") from error
    if package == "numpy":
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    if package == "safetensors":
        return dict(module.load_file(path))
    return _read_hdf5(module, path) if package == "h5py" else _read_torch(module, path)


def to_numpy(array: Any) -> np.ndarray:
    """Converts an array or PyTorch tensor, also one in bfloat16 or with a gradient, to float32 or wider."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        array = (array if "float64" in str(array.dtype) else array.float()).numpy()
    array = np.asarray(array)
    return array if array.dtype == np.float64 else array.astype(np.float32)


def _read_torch(torch: Any, path: Path) -> dict[str, Any]:
    found = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(found, Mapping) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        held = f"a mapping with the keys {list(found)[:5]}" if isinstance(found, Mapping) else type(found).__name__
        raise ValueError(
            f"'{path.name}' must hold a state dict, that is, tensors by name. Pass the state dict in it as a mapping: "
            f"`source=torch.load(path, weights_only=True)[key]`. Received: {held}"
        )
    return dict(found)


def _read_hdf5(h5py: Any, path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def collect(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name.removesuffix(":0")] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(collect)
    return found

"""The trained nets that come with the package."""

import importlib.util
from pathlib import Path


def pretrained() -> Path:
    """Returns the repository of the trained nets that come with the package.

    `highway_keras` is not imported, because it imports Keras.
    """
    spec = importlib.util.find_spec("highway_keras")
    assert spec, "it is part of the same distribution"
    return Path(spec.origin or "").parent / "trained"


def again(path: Path) -> str:
    """Returns what to do about a damaged version, which differs for nets of the package.

    Args:
        path: the version, or a file of it.

    Returns:
        A sentence without its full stop.

    Example:
        again(Path("models/demo/1"))  # "Export the model again"
    """
    if path.resolve().is_relative_to(pretrained().resolve()):
        return "Install highway-keras, which it belongs to, again (pip install --force-reinstall)"
    return "Export the model again"

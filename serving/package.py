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


def again(path: Path, own: str = "Export the model again") -> str:
    """Returns what to do about a version that is damaged or wrong, which differs for nets of the package.

    Args:
        path: the version, or a file of it.
        own: what to do about a version of one's own.

    Returns:
        A sentence without its full stop.

    Example:
        again(Path("models/demo/1"))  # "Export the model again"
    """
    if path.resolve().is_relative_to(pretrained().resolve()):
        return "Install highway-keras, which it belongs to, again (pip install --force-reinstall)"
    return own

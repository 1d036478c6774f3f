"""FastAPI and ONNX Runtime, with nothing in between."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.servers import web
from serving.session import open_session


def make(folder: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Opens the net on one thread, as the endpoint does."""
    session = open_session(folder / "model.onnx")
    return lambda images: session.run(["probabilities"], {"image": images})[0]


if __name__ == "__main__":
    web.run(make)

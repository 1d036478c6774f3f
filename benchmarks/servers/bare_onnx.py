"""FastAPI and ONNX Runtime, without anything in between."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.servers import web
from serving.session import open_session


def make(folder: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Opens the net, for one thread, as the endpoint has it."""
    session = open_session(folder / "model.onnx")
    return lambda images: session.run(["probabilities"], {"image": images})[0]


if __name__ == "__main__":
    web.run(make)

"""Inputs and answers, which all servers share."""

from typing import Any

import numpy as np

SHAPE = (1, 28, 28, 1)


def image(body: bytes) -> np.ndarray:
    """Converts pixels to a batch of one, uint8 [1, 28, 28, 1]."""
    return np.frombuffer(body, np.uint8).reshape(SHAPE)


def best(probabilities: np.ndarray) -> dict[str, Any]:
    """Returns the answer: the three most probable classes of one row."""
    classes = np.argsort(-probabilities)[:3]
    return {"top": [{"label": str(index), "probability": float(probabilities[index])} for index in classes]}

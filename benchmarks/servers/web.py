"""A plain FastAPI app around a function, on uvicorn with uvloop and httptools: the usual first version."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Request

from benchmarks.servers.answer import best, image


def run(make: Callable[[Path], Callable[[np.ndarray], np.ndarray]]) -> None:
    """Serves the net in the folder that the command line names.

    Args:
        make: opens the folder; returns a function from a batch of pixels to probabilities.
    """
    predict = make(Path(sys.argv[1]))
    app = FastAPI()

    @app.post("/predict")
    async def answer(request: Request) -> dict[str, Any]:
        return best(predict(image(await request.body()))[0])

    uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)

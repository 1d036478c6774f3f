"""BentoML with ONNX Runtime, which reads JSON. With the option `batch` it batches adaptively."""

import base64
import os
import sys
from typing import Any

import bentoml
import numpy as np
import onnxruntime

from benchmarks.servers.answer import best, image

# Environment variables, because BentoML's workers are separate processes.
FOLDER, BATCHING = "BENCHMARK_FOLDER", "BENCHMARK_BATCHING"


@bentoml.service(workers=1)
class Digits:
    """The net."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(f"{os.environ[FOLDER]}/model.onnx", options)

    @bentoml.api(batchable=bool(os.environ.get(BATCHING)), max_batch_size=64)
    def predict(self, b64: list[str]) -> list[dict[str, Any]]:
        """Answers a batch of requests."""
        images = np.concatenate([image(base64.b64decode(text)) for text in b64])
        return [best(row) for row in self.session.run(["probabilities"], {"image": images})[0]]


if __name__ == "__main__":
    os.environ[FOLDER] = sys.argv[1]
    os.environ[BATCHING] = "yes" if "batch" in sys.argv[3:] else ""
    os.environ["BENTOML_DO_NOT_TRACK"] = "true"
    bentoml.serve("benchmarks.servers.bento:Digits", port=int(sys.argv[2]), blocking=True)

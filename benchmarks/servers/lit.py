"""LitServe with ONNX Runtime, which reads JSON. With the option `batch` it gathers requests for a millisecond."""

import base64
import sys
from pathlib import Path
from typing import Any

import litserve
import numpy as np
import onnxruntime

from benchmarks.servers.answer import best, image

# Largest batch of requests, and seconds to gather it.
BATCH, WAIT = 64, 0.001


class Digits(litserve.LitAPI):
    """The net."""

    def setup(self, device: str) -> None:  # noqa: ARG002
        """Opens the net on one thread."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(Path(sys.argv[1]) / "model.onnx", options)

    def decode_request(self, request: dict[str, str], **_: Any) -> np.ndarray:
        """Decodes the pixels of a request."""
        return image(base64.b64decode(request["b64"]))

    def batch(self, inputs: list[np.ndarray]) -> np.ndarray:
        """Joins requests into one batch."""
        return np.concatenate(inputs)

    def predict(self, x: np.ndarray, **_: Any) -> np.ndarray:
        """Predicts probabilities."""
        return self.session.run(["probabilities"], {"image": x})[0]

    def unbatch(self, output: np.ndarray) -> list[np.ndarray]:
        """Splits a batch into rows."""
        return list(output)

    def encode_response(self, output: np.ndarray, **_: Any) -> dict[str, Any]:
        """Returns the answer."""
        return best(output.reshape(-1))


if __name__ == "__main__":
    api = Digits(max_batch_size=BATCH, batch_timeout=WAIT) if "batch" in sys.argv[3:] else Digits()
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(port=int(sys.argv[2]), generate_client_file=False, log_level="warning", access_log=False)

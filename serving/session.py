"""ONNX Runtime, imported here and nowhere else."""

import os
from pathlib import Path
from typing import Any

from serving.errors import ModelError


def open_session(path: Path, threads: int = 1, *, content: bytes | None = None) -> Any:
    """Loads an ONNX file for the CPU.

    Args:
        path: the file.
        threads: threads for one call. One is fastest for small nets, where handing work over costs more than it saves.
        content: of the file, if it was read already; it then loads nothing from beside it.

    Returns:
        An `onnxruntime.InferenceSession`.

    Raises:
        ModelError: if ONNX Runtime cannot load the file.

    Example:
        probabilities, class_id = open_session(path).run(["probabilities", "class_id"], {"image": images})
    """
    # ONNX Runtime sends telemetry unless told otherwise before its import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    try:
        return onnxruntime.InferenceSession(
            path if content is None else content, options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        # ONNX Runtime's exceptions share no base but this one.
        raise ModelError(f"{path} cannot be loaded: {error} Export the model again.") from error

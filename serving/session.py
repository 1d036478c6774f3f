"""ONNX Runtime, imported here and nowhere else."""

import os
import threading
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from serving.errors import ModelError

_shared: WeakValueDictionary[str, Any] = WeakValueDictionary()
_opening = threading.Lock()


def open_shared(path: Path, digest: str, content: bytes | None = None) -> Any:
    """Loads an ONNX file whose inputs may be large, once for all who have the same.

    Models of one kind and size have the same `picture.onnx`. It keeps no memory between calls: in ONNX Runtime's
    arena four models kept 3.4 GB of pictures of 2,047 x 2,047 pixels, and were no faster.

    Args:
        path: the file.
        digest: its SHA-256.
        content: of the file, if it was read already; it then loads nothing from beside it.

    Returns:
        An `onnxruntime.InferenceSession`; it is closed when nobody has it any more.

    Raises:
        ModelError: if ONNX Runtime cannot load the file.
    """
    with _opening:
        session = _shared.get(digest)
        if session is None:
            session = _shared[digest] = open_session(path, content=content, arena=False)
        return session


def open_session(path: Path, threads: int = 1, *, content: bytes | None = None, arena: bool = True) -> Any:
    """Loads an ONNX file for the CPU.

    Args:
        path: the file.
        threads: threads for one call. One is fastest for small nets, where handing work over costs more than it saves.
        content: of the file, if it was read already; it then loads nothing from beside it.
        arena: whether to keep memory for the next call: as much as the largest one needed, for each session.

    Returns:
        An `onnxruntime.InferenceSession`.

    Raises:
        ModelError: if ONNX Runtime cannot load the file.

    Example:
        (probabilities,) = open_session(path).run(["probabilities"], {"image": images})
    """
    # ONNX Runtime sends telemetry unless told otherwise before its import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = arena
    options.log_severity_level = 3  # errors
    try:
        return onnxruntime.InferenceSession(
            path if content is None else content, options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        # ONNX Runtime's exceptions share no base but this one.
        raise ModelError(f"{path} cannot be loaded: {error} Export the model again.") from error

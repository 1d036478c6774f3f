"""Sessions of ONNX Runtime, which is imported only here."""

import os
import re
import threading
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from serving.errors import ModelError
from serving.manifest import WEIGHTS
from serving.package import again

# Name of ONNX Runtime's setting of the folder with the weights of a graph that is given as bytes.
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
# Types of nodes with a loop, as a file contains them: the field `op_type` and its length come first.
_LOOPS = (b"\x22\x04Loop", b"\x22\x04Scan")
# Parts of ONNX Runtime's messages that tell its developers more than anybody else: the code, the place in its sources
# with the signature of a function, and the name of a node in a sentence that is always the same.
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_PLACE = re.compile(r"\S+\.(?:h|cc|cpp):\d+ .*?\)(?: const)?(?: \[with [^\]]*\])? ", re.DOTALL)
_NODE = re.compile(r"Non-zero status code returned while running (\w+) node\. Name:'[^']*' Status Message: ")
_shared: WeakValueDictionary[str, Any] = WeakValueDictionary()
_opening = threading.Lock()


def load_runtime() -> Any:
    """Imports ONNX Runtime, without its telemetry unless the user enables it."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime


def open_shared(path: Path, digest: str, content: bytes | None = None) -> Any:
    """Loads an ONNX file with large inputs once for all users of the same file.

    Models of one kind and size have the same `picture.onnx`. The session keeps no memory between calls: ONNX Runtime's
    arena would keep as much as the largest image so far needed, without being faster.

    Args:
        path: the file.
        digest: its SHA-256.
        content: content of the file, if it has been read already; nothing is loaded from its folder then.

    Returns:
        An `onnxruntime.InferenceSession`, freed with its last reference.

    Raises:
        ModelError: ONNX Runtime cannot load the file.
    """
    with _opening:
        session = _shared.get(digest)
        if session is None:
            session = _shared[digest] = open_session(path, content=content, arena=False)
        return session


def has_loop(content: bytes) -> bool:
    """Returns whether an ONNX graph has a loop: equal layers of deep nets become one layer in a loop.

    ONNX Runtime asks its arena for memory in each iteration, and for a graph without loops once per call. Calls of deep
    nets that run at the same time would spend most of their time waiting for the arena.

    Args:
        content: the file. A wrong answer, for weights that look like a loop, costs nothing but some speed.
    """
    return any(loop in content for loop in _LOOPS)


def fault(error: Exception) -> str:
    """Returns what an exception of ONNX Runtime says, on one line and without a full stop at the end."""
    text = _NODE.sub(r"\1: ", _PLACE.sub("", _CODE.sub("", str(error))))
    return " ".join(text.split()).rstrip(".")


def open_session(
    path: Path, threads: int = 1, *, content: bytes | None = None, weights: bytes | None = None, arena: bool = True
) -> Any:
    """Loads an ONNX file for the CPU.

    Args:
        path: the file.
        threads: threads of one call. One is fastest for small nets, where handing work over costs more than it saves.
        content: content of the file, if it has been read already; nothing is loaded from its folder then.
        weights: content of the file `weights.npz` that `content` points at, if it does.
        arena: whether the session keeps memory for the next call: as much as its largest call needed. Calls that run at
            the same time have to wait for each other there; see `has_loop`.

    Returns:
        An `onnxruntime.InferenceSession`.

    Raises:
        ModelError: ONNX Runtime cannot load the file.

    Example:
        (probabilities,) = open_session(path).run(["probabilities"], {"image": images})
    """
    onnxruntime = load_runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = arena
    options.log_severity_level = 3  # errors
    if content is not None:
        # ONNX Runtime would otherwise read weights from files in the working directory, which nobody has checked.
        options.add_session_config_entry(_WEIGHTS_FOLDER, os.devnull)
    if weights is not None:
        options.add_external_initializers_from_files_in_memory([WEIGHTS], [weights], [len(weights)])
    try:
        return onnxruntime.InferenceSession(
            path if content is None else content, options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        # ONNX Runtime's exceptions share no other base.
        raise ModelError(f"{path} cannot be loaded: {fault(error)}. {again(path)}.") from error

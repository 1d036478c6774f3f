"""Requests that TF Serving answers for itself when it loads a version, so that no user waits for its first one."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from serving.manifest import ENCODED, INPUT, SIGNATURE, SIGNATURE_FILES, WARMUP
from serving.tf_serving import messages

# The sizes of batches that are warmed up: one picture, and what a full batch of the server's may be.
BATCHES = (1, 32)


def write_warmup(folder: Path, name: str, images: np.ndarray, files: list[bytes]) -> None:
    """Writes the warm-up requests of a version, for each of its signatures.

    Args:
        folder: the version's files; the requests are put into its `assets.extra`.
        name: of the model.
        images: real pictures, uint8 `[n, height, width, channels]`.
        files: some of them as PNG files.
    """
    path = folder / WARMUP
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, given, values in (
            (SIGNATURE, INPUT, images),
            (SIGNATURE_FILES, ENCODED, np.array(files, object)),
        ):
            for batch in BATCHES:
                log = messages.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name, request.model_spec.signature_name = name, signature
                # np.resize repeats what there is until it is enough.
                request.inputs[given].CopyFrom(messages.tensor(np.resize(values, (batch, *values.shape[1:]))))
                writer.write(log.SerializeToString())

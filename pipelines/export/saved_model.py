"""The SavedModel of a version, with TF Serving's warm-up requests."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipelines.export.form import Form, OpenedForm, Outputs, TracedNet
from serving.manifest import ENCODED, SIGNATURE, SIGNATURE_FILES, WARMUP

# Batch sizes for the warm-up: a single image, and the server's largest batch.
BATCHES = (1, 32)


def write(source: TracedNet, folder: Path) -> None:
    """Writes a SavedModel that can be loaded without this package and without Keras.

    Args:
        source: the traced net; the signature `serving_default` takes pixels or rows, `serving_bytes` takes files.
        folder: folder to write to; created if missing.
    """
    import tensorflow as tf

    from pipelines.export.graph import prediction_of_files, without_maps

    predict = without_maps(source.predict)
    functions = {SIGNATURE: predict}
    if source.convert is not None:
        functions[SIGNATURE_FILES] = prediction_of_files(predict, source.convert, source.side)
    # Concrete: TensorFlow traces a `tf.function` twice and would store both graphs, as `keras.export` does.
    signatures = {name: function.get_concrete_function() for name, function in functions.items()}
    module = tf.Module()
    module.weights = signatures[[*signatures][-1]].graph.variables
    tf.saved_model.save(module, folder, signatures)
    _write_warmup(folder, source, predict.input_signature[0].name)


def load(folder: Path) -> OpenedForm:
    """Opens the signatures of a SavedModel."""
    import tensorflow as tf

    from pipelines.export.reference import full_float32

    loaded = tf.saved_model.load(folder)
    (name,) = loaded.signatures[SIGNATURE].structured_input_signature[1]

    def predict(signature: str, name: str, values: np.ndarray) -> Outputs:
        with full_float32():
            # Goes through `loaded`, which owns the variables: a signature alone does not keep them alive.
            outputs = loaded.signatures[signature](**{name: tf.constant(values)})
        return {key: value.numpy() for key, value in outputs.items()}

    def from_files(files: Sequence[bytes]) -> Outputs:
        return predict(SIGNATURE_FILES, ENCODED, np.array(files, object))

    takes_files = SIGNATURE_FILES in loaded.signatures
    return OpenedForm(lambda images: predict(SIGNATURE, name, images), from_files if takes_files else None)


FORM = Form("SavedModel", "saved_model", ("saved_model.pb",), write, load)


def _write_warmup(folder: Path, source: TracedNet, name: str) -> None:
    """Writes requests for each signature, so that TF Serving compiles before the first user request."""
    import tensorflow as tf

    from serving.messages import tf_serving as messages

    path = folder / WARMUP
    requests = [(SIGNATURE, name, source.images)]
    if source.files:
        requests.append((SIGNATURE_FILES, ENCODED, np.array(source.files, object)))
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, taken, values in requests:
            for batch in BATCHES:
                log = messages.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name = folder.resolve().parent.name
                request.model_spec.signature_name = signature
                # np.resize repeats the values until the batch is full.
                request.inputs[taken].CopyFrom(messages.tensor(np.resize(values, (batch, *values.shape[1:]))))
                writer.write(log.SerializeToString())

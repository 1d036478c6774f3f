"""The function from uint8 pixels to probabilities that every exported form is traced from."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from highway_keras.analysis.gate_values import means_of_examples
from highway_keras.layers.recording import recording
from pipelines.data import preprocess
from pipelines.data.images.decoding import decode
from pipelines.export.stack import for_inference
from serving.manifest import CLASS_ID, ENCODED, GATE_MEANS, INPUT, LABEL, PROBABILITIES

# A `tf.function`; TensorFlow provides no types for a checker.
Function: TypeAlias = Any


def in_float32(model: keras.Model) -> keras.Model:
    """Rebuilds a net in float32 with the same weights.

    A mixed policy must not leak into a graph, because ONNX Runtime does not load bfloat16 products. The net is rebuilt
    from its own configuration, so that any net can be exported, not only an unchanged preset.

    Args:
        model: a trained net of any dtype policy; it is not changed.

    Returns:
        A new model.

    Example:
        in_float32(load_model(run)).dtype_policy.name  # float32
    """
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    try:
        copy = type(model).from_config(_float32(model.get_config()))
    finally:
        keras.config.set_dtype_policy(policy)
    copy.set_weights(model.get_weights())
    return copy


def prediction(model: keras.Model, fitted: preprocess.Fitted, labels: Sequence[str], gates: bool = False) -> Function:
    """Combines preprocessing, net and softmax in one traced function.

    Args:
        model: a net in float32 that returns logits for `[batch, height, width, channels]`.
        fitted: the preprocessing it was trained with.
        labels: names of the classes.
        gates: whether to return `gate_means` too.

    Returns:
        A `tf.function` from `image`, uint8 `[batch, height, width, channels]`, to a dict with `probabilities`, float32
        `[batch, classes]`; `class_id`, int64 `[batch]`; `label`, string `[batch]`; and `gate_means`, float32
        `[batch, layers]`, the mean of T of each highway layer.

    Example:
        prediction(model, fitted, labels)(images)["label"]
    """
    net = for_inference(model)

    @tf.function(input_signature=[tf.TensorSpec((None, *model.input_shape[1:]), tf.uint8, name=INPUT)])
    def predict(image: tf.Tensor) -> dict[str, tf.Tensor]:
        x = preprocess.apply(fitted, image)
        outputs = {}
        if gates:
            with recording() as recorded:
                logits = net(x, training=False)
            means = means_of_examples(recorded).values()
            outputs[GATE_MEANS] = tf.concat([mean if len(mean.shape) == 2 else mean[:, None] for mean in means], axis=1)
        else:
            logits = net(x, training=False)
        outputs[PROBABILITIES] = tf.nn.softmax(logits)
        outputs[CLASS_ID] = tf.argmax(outputs[PROBABILITIES], axis=-1, output_type=tf.int64)
        outputs[LABEL] = tf.gather(tf.constant(labels), outputs[CLASS_ID])
        return outputs

    return predict


def prediction_of_files(predict: Function, convert: Function) -> Function:
    """Extends a prediction to encoded image files of any size.

    Args:
        predict: the result of `prediction`.
        convert: the result of `pipelines.data.images.conversion.converter`, for the same net.

    Returns:
        A `tf.function` from `image_bytes`, string `[batch]`, each a PNG or JPEG file, to the outputs of `predict`. A
        file that is neither makes the whole batch fail.

    Example:
        prediction_of_files(predict, converter("digit", (28, 28, 1)))(tf.constant([Path("7.png").read_bytes()]))
    """
    image = convert.get_concrete_function().structured_outputs[INPUT]

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name=ENCODED)])
    def predict_files(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        images = tf.map_fn(
            lambda encoded: convert(decode(encoded))[INPUT],
            image_bytes,
            fn_output_signature=tf.TensorSpec(image.shape, image.dtype),
        )
        return predict(images)

    return predict_files


def _float32(config: Any) -> Any:
    """Replaces every floating-point dtype and policy in a serialized net; indices and masks keep their dtypes."""
    if isinstance(config, dict):
        if config.get("class_name") == "DTypePolicy":
            return {**config, "config": {**config["config"], "name": "float32"}}
        return {key: _float32_name(value) if key == "dtype" else _float32(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return type(config)(_float32(value) for value in config)
    return config


def _float32_name(dtype: Any) -> Any:
    return "float32" if isinstance(dtype, str) and "float" in dtype else _float32(dtype)

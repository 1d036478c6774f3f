"""From uint8 pixels to probabilities: the one function that every exported form is traced from."""

from typing import Any

import keras
import tensorflow as tf

from pipelines.data import preprocess
from pipelines.exporting.stack import for_inference
from serving.manifest import CLASS_ID, INPUT, PROBABILITIES


def in_float32(model: keras.Model) -> keras.Model:
    """The same net with the same weights, computed in float32 throughout.

    A mixed policy must not leak into a graph: ONNX Runtime does not load bfloat16 products. The net is built again
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


def prediction(model: keras.Model, fitted: preprocess.Fitted) -> tf.types.experimental.PolymorphicFunction:
    """Preprocessing, net and softmax as one traced function.

    Args:
        model: a net in float32 that gives logits for `[batch, height, width, channels]`.
        fitted: the preprocessing it was trained with.

    Returns:
        A `tf.function` from `image`, uint8 `[batch, height, width, channels]`, to the dict of `probabilities`,
        float32 `[batch, classes]`, and `class_id`, int64 `[batch]`.

    Example:
        prediction(model, fitted)(images)["class_id"]
    """
    net = for_inference(model)

    @tf.function(input_signature=[tf.TensorSpec((None, *model.input_shape[1:]), tf.uint8, name=INPUT)])
    def predict(image: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = tf.nn.softmax(net(preprocess.apply(fitted, image), training=False))
        return {PROBABILITIES: probabilities, CLASS_ID: tf.argmax(probabilities, axis=-1, output_type=tf.int64)}

    return predict


def _float32(config: Any) -> Any:
    """A serialised net with every floating-point dtype and policy replaced; indices and masks keep theirs."""
    if isinstance(config, dict):
        if config.get("class_name") == "DTypePolicy":
            return {**config, "config": {**config["config"], "name": "float32"}}
        return {key: _float32_name(value) if key == "dtype" else _float32(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return type(config)(_float32(value) for value in config)
    return config


def _float32_name(dtype: Any) -> Any:
    return "float32" if isinstance(dtype, str) and "float" in dtype else _float32(dtype)

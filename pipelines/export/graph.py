"""The function that every exported form is traced from: from pixels or rows of a table to predictions."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from highway_keras.analysis.gate_values import maps_of_examples, means_of_examples
from highway_keras.layers.recording import recording
from highway_keras.surgery import folded
from pipelines.data import preprocess
from pipelines.data.images.decoding import decode
from pipelines.export.stack import for_inference
from serving.inputs import INPUT, ROW
from serving.manifest import CLASS_ID, ENCODED, GATE_MAPS, GATE_MEANS, LABEL, PROBABILITIES, VALUE, GateMap

# A `tf.function`; TensorFlow provides no types for a checker.
Function: TypeAlias = Any
# Prefix of the names of weights as arguments.
WEIGHT = "weight_"


def _traced(signature: Sequence[tf.TensorSpec]) -> Any:
    # Conditions and loops are TensorFlow's own: AutoGraph would only take time to look for Python's.
    return tf.function(input_signature=signature, autograph=False)


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


def with_temperature(model: keras.Model, temperature: float) -> keras.Model:
    """Divides the logits of a net by a temperature.

    Args:
        model: a net that returns logits; the new one has the same layers and one more.
        temperature: the result of `pipelines.training.evaluation.fit_temperature`.

    Returns:
        A new model.

    Example:
        with_temperature(model, 1.4)
    """
    scaled = keras.layers.Rescaling(1 / temperature, dtype="float32", name="temperature")(model.output)
    return keras.Model(model.input, scaled, name=model.name)


def prediction(
    model: keras.Model,
    fitted: preprocess.Fitted,
    labels: Sequence[str],
    gates: bool = False,
    columns: int | None = None,
    *,
    multi_label: bool = False,
) -> Function:
    """Combines preprocessing, net (with batch normalization folded) and softmax or sigmoid in one traced function.

    Args:
        model: a net in float32 that returns logits for `[batch, height, width, channels]`, or for rows of a table.
        fitted: the preprocessing it was trained with.
        labels: names of the classes; none for a net that returns a number.
        gates: whether to return `gate_means` too, and `gate_maps` if the net has convolutional highway layers.
        columns: number of columns of the table; None for images.
        multi_label: whether the probability of each class is independent of the others.

    Returns:
        A `tf.function` from `image`, uint8 `[batch, height, width, channels]`, to a dict with `probabilities`, float32
        `[batch, classes]`; `class_id`, int64 `[batch]`; `label`, string `[batch]`; `gate_means`, float32
        `[batch, layers]`, the mean of T of each highway layer; and `gate_maps`, float32 `[batch, positions]`, the mean
        of T over channels at each position of each layer of `map_shapes`. For a table, the input is `row`, float32
        `[batch, columns]`. Without labels, `value`, float32 `[batch, 1]`, is in place of the first three.

    Example:
        prediction(model, fitted, labels)(images)["label"]
    """
    net = for_inference(folded(model))

    activation = tf.sigmoid if multi_label else tf.nn.softmax
    spec = tf.TensorSpec((None, *model.input_shape[1:]), tf.uint8, name=INPUT)
    if columns is not None:
        spec = tf.TensorSpec((None, columns), tf.float32, name=ROW)

    @_traced([spec])
    def predict(example: tf.Tensor) -> dict[str, tf.Tensor]:
        return _outputs(net, fitted, labels, gates, example, probabilities=activation)

    return predict


def prediction_of_weights(
    model: keras.Model, fitted: preprocess.Fitted, labels: Sequence[str], dtypes: Sequence[Any]
) -> Function:
    """Returns the function of `prediction` with the weights as arguments, so that they can be stored in another format.

    Args:
        model: see `prediction`; only its graph matters.
        fitted: see `prediction`.
        labels: see `prediction`.
        dtypes: type of each of `model.weights` in the arguments; the function computes in float32.

    Returns:
        A `tf.function` from `image` and the weights, `weight_0` and so on, to the outputs of `prediction` with gates.

    Example:
        prediction_of_weights(model, fitted, labels, ["float16"] * len(model.weights))
    """
    image_spec = tf.TensorSpec((None, *model.input_shape[1:]), tf.uint8, name=INPUT)
    specs = [
        tf.TensorSpec(weight.shape, dtype, name=f"{WEIGHT}{number}")
        for number, (weight, dtype) in enumerate(zip(model.weights, dtypes, strict=True))
    ]

    @_traced([image_spec, *specs])
    def predict(image: tf.Tensor, *values: tf.Tensor) -> dict[str, tf.Tensor]:
        stored = [tf.cast(value, tf.float32) for value in values]
        with keras.StatelessScope(state_mapping=list(zip(model.weights, stored, strict=True))):
            return _outputs(model, fitted, labels, True, image)

    return predict


def _outputs(
    net: keras.Model,
    fitted: preprocess.Fitted,
    labels: Sequence[str],
    gates: bool,
    image: tf.Tensor,
    *,
    probabilities: Callable[[tf.Tensor], tf.Tensor] = tf.nn.softmax,
) -> dict[str, tf.Tensor]:
    x = preprocess.apply(fitted, image)
    outputs = {}
    if gates:
        with recording() as recorded:
            logits = net(x, training=False)
        maps = maps_of_examples(recorded)
        # The mean of a map is that of its gates, which are read only once this way.
        means = means_of_examples(recorded) | {name: tf.reduce_mean(one, (1, 2)) for name, one in maps.items()}
        columns = [mean if len(mean.shape) == 2 else mean[:, None] for mean in means.values()]
        outputs[GATE_MEANS] = tf.concat(columns, axis=1)
        if maps:
            rows = [tf.reshape(one, (-1, one.shape[1] * one.shape[2])) for one in maps.values()]
            outputs[GATE_MAPS] = tf.concat(rows, axis=1)
    else:
        logits = net(x, training=False)
    if not labels:
        return {VALUE: preprocess.in_units(fitted, logits), **outputs}
    outputs[PROBABILITIES] = probabilities(logits)
    outputs[CLASS_ID] = tf.argmax(outputs[PROBABILITIES], axis=-1, output_type=tf.int64)
    outputs[LABEL] = tf.gather(tf.constant(labels), outputs[CLASS_ID])
    return outputs


def map_shapes(model: keras.Model) -> tuple[GateMap, ...]:
    """Returns the layers in `gate_maps`, with the shapes of their maps, by one prediction.

    Args:
        model: a net in float32 for `[batch, height, width, channels]`.

    Example:
        map_shapes(from_preset("mnist_conv_16"))[0].height  # 8
    """
    with recording() as recorded:
        model(tf.zeros((1, *model.input_shape[1:])), training=False)
    shapes = {name: one.shape[1:] for name, one in maps_of_examples(recorded).items()}
    return tuple(GateMap(layer=name, height=height, width=width) for name, (height, width) in shapes.items())


def without_maps(predict: Function) -> Function:
    """Removes `gate_maps` from a prediction.

    TF Serving returns all outputs to clients that do not choose, and maps have thousands of values.

    Args:
        predict: the result of `prediction`.

    Example:
        without_maps(prediction(model, fitted, labels, gates=True))(images)["gate_means"]
    """

    @_traced(predict.input_signature)
    def smaller(example: tf.Tensor) -> dict[str, tf.Tensor]:
        return {name: output for name, output in predict(example).items() if name != GATE_MAPS}

    return smaller


def prediction_of_files(predict: Function, convert: Function, side: int) -> Function:
    """Extends a prediction to encoded image files of any size.

    Args:
        predict: the result of `prediction`.
        convert: the result of `pipelines.data.images.conversion.converter`, for the same net.
        side: the result of `pipelines.data.images.conversion.side_of`, for the same net.

    Returns:
        A `tf.function` from `image_bytes`, string `[batch]`, each a PNG or JPEG file, to the outputs of `predict`. A
        file that is neither makes the whole batch fail.

    Example:
        prediction_of_files(predict, converter("digit", (28, 28, 1)), 500)(tf.constant([Path("7.png").read_bytes()]))
    """
    image = convert.get_concrete_function().structured_outputs[INPUT]

    @_traced([tf.TensorSpec((None,), tf.string, name=ENCODED)])
    def predict_files(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        images = tf.map_fn(
            lambda encoded: convert(decode(encoded, side))[INPUT],
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

"""Scores match the outputs of a model: logits or probabilities of classes, binary labels or tokens."""

import keras
import numpy as np
import pytest
from keras import layers, losses, ops

from highway_keras import Highway
from highway_keras.analysis import classification, gradient_norms, in_batches, lesion_layers, probabilities, regression
from highway_keras.analysis.scorer import output_kind, scorer
from tests.unit.highway_keras.backend import array, scramble, slow_on_jax

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 4)).astype("float32")
ZEROS = {"kernel_initializer": "zeros"}


def model_of(*last, shape=(4,)):
    return keras.Sequential([keras.Input(shape), Highway(transform_initializer="zeros", **ZEROS, name="h"), *last])


def dense(units, activation=None):
    return layers.Dense(units, activation=activation, **ZEROS)


def functional(*last):
    x = inputs = keras.Input((4,))
    for layer in last:
        x = layer(x)
    return keras.Model(inputs, x)


HEADS = [
    ("linear", [dense(3)]),
    ("softmax", [dense(3, "softmax")]),
    ("sigmoid", [dense(1, "sigmoid")]),
    ("softmax", [dense(3), layers.Softmax()]),
    ("softmax", [dense(3), layers.Activation("softmax", dtype="float32")]),
    ("linear", [dense(3), layers.Activation("linear"), layers.Dropout(0.5)]),
    ("linear", [dense(3, "log_softmax")]),
    ("softmax", [layers.Reshape((2, 2)), layers.TimeDistributed(dense(3, "softmax"))]),
    ("softmax", [layers.Reshape((1, 1, 4)), layers.Conv2D(3, 1, activation="softmax"), layers.Flatten()]),
    (None, [layers.Reshape((2, 2)), dense(3, "softmax"), layers.Flatten()]),  # rows have a sum of 2
    ("linear", [keras.Sequential([keras.Input((4,)), dense(2)])]),
    (None, [dense(3, "relu")]),
    (None, [Highway(activation="softmax")]),
    (None, [dense(3), ops.softmax]),
]


@pytest.mark.parametrize(("expected", "last"), HEADS)
def test_the_last_activation_is_found(expected, last):
    assert output_kind(functional(*last)) == expected
    if not any(layer is ops.softmax for layer in last):
        assert output_kind(model_of(*last)) == expected


def test_the_last_activation_of_a_model_without_a_graph_is_unknown():
    class Plain(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = dense(3, "softmax")

        def call(self, x):
            return self.last(x)

    model = Plain()
    assert output_kind(model) is None
    outputs = ops.zeros((5, 3))
    with pytest.raises(ValueError, match=r"Cannot determine .* activation of its last layer"):
        scorer(model, outputs, None)
    model.compile(loss=losses.SparseCategoricalCrossentropy(from_logits=True))
    assert scores_of(model, None, [0], np.zeros((1, 3), "float32"))["loss"] == pytest.approx(np.log(3))


def scores_of(model, asked, y, outputs):
    """Computes the scores of given outputs without running the model."""
    outputs = keras.tree.map_structure(ops.convert_to_tensor, outputs)
    suiting = scorer(model, outputs, asked)
    found = suiting.scores(ops.convert_to_tensor(suiting.labels(y)), outputs)
    return {name: array(values) for name, values in found.items()}


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


LOGITS = RNG.normal(size=(5, 3)).astype("float32")
CLASSES = np.array([0, 1, 2, 1, 1])
TOKEN_LOGITS = RNG.normal(size=(5, 2, 3)).astype("float32")
TOKENS = RNG.integers(0, 3, (5, 2))
BINARY = np.array([0, 1, 1, 0, 1])


@pytest.mark.parametrize("form", ["numbers", "column", "one-hot"])
@pytest.mark.parametrize(
    ("head", "logits", "y"), [(dense(3), LOGITS, CLASSES), (dense(3), TOKEN_LOGITS, TOKENS)], ids=["classes", "tokens"]
)
@pytest.mark.parametrize("activation", [None, "softmax"])
def test_scores_of_classes_and_tokens(head, logits, y, activation, form):
    shape = (4,) if y.ndim == 1 else (2, 4)
    model = model_of(dense(3, activation), shape=shape)
    labels = {"numbers": y, "column": y[..., None], "one-hot": np.eye(3)[y]}[form]
    chances = softmax(logits)
    found = scores_of(model, None, labels, chances if activation else logits)
    expected = -np.log(np.take_along_axis(chances, y[..., None], -1)[..., 0])
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)
    np.testing.assert_array_equal(found["accuracy"], logits.argmax(-1) == y)


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_scores_of_binary_labels(activation):
    chances = 1 / (1 + np.exp(-LOGITS[:, :1]))
    outputs = chances if activation else LOGITS[:, :1]
    for y in (BINARY, BINARY[:, None], BINARY.astype(bool)):
        found = scores_of(model_of(dense(1, activation)), None, y, outputs)
        right = np.where(BINARY == 1, chances[:, 0], 1 - chances[:, 0])
        np.testing.assert_allclose(found["loss"], -np.log(right), rtol=1e-5)
        np.testing.assert_array_equal(found["accuracy"], right > 0.5)


def test_scores_of_soft_labels():
    y = softmax(RNG.normal(size=(5, 3)))
    for asked, outputs, last in ((classification, LOGITS, None), (probabilities, softmax(LOGITS), "softmax")):
        found = scores_of(model_of(dense(3, last)), asked, y, outputs)
        np.testing.assert_allclose(found["loss"], -(y * np.log(softmax(LOGITS))).sum(axis=1), rtol=1e-5)


def test_several_sigmoids_are_independent_binary_labels():
    y = (RNG.random((5, 3)) < 0.5).astype(int)
    chances = 1 / (1 + np.exp(-LOGITS))
    found = scores_of(model_of(dense(3, "sigmoid")), None, y, chances)
    right = np.where(y == 1, chances, 1 - chances)
    np.testing.assert_allclose(found["loss"], -np.log(right).mean(axis=1), rtol=1e-4)
    np.testing.assert_allclose(found["accuracy"], (right > 0.5).mean(axis=1))


@pytest.mark.parametrize(
    ("loss", "y", "accuracy"),
    [
        ("sparse_categorical_crossentropy", CLASSES[:, None], True),
        (losses.CategoricalCrossentropy(label_smoothing=0.1), np.eye(3)[CLASSES], True),
        (losses.BinaryCrossentropy(), np.eye(3)[CLASSES], True),
        ("mse", np.eye(3)[CLASSES], False),
        (lambda y, outputs: ops.mean(ops.abs(y - outputs), axis=-1), np.eye(3)[CLASSES], False),
    ],
)
def test_the_loss_of_a_compiled_model(loss, y, accuracy):
    model, chances = model_of(dense(3, "softmax")), softmax(LOGITS).astype("float32")
    model.compile(loss=loss)
    found = scores_of(model, "compiled", y, chances)
    expected = model.compute_loss(y=ops.convert_to_tensor(y), y_pred=ops.convert_to_tensor(chances))
    assert found["loss"].mean() == pytest.approx(float(expected), rel=1e-5)
    assert ("accuracy" in found) == accuracy


def test_a_keras_loss_is_per_example_without_broadcasting():
    y, outputs = RNG.normal(size=5).astype("float32"), LOGITS[:, :1]
    found = scores_of(model_of(dense(1)), losses.Huber(), y, outputs)
    # Keras's own losses would broadcast y against the outputs.
    assert found["loss"].shape == (5,)
    np.testing.assert_allclose(
        scores_of(model_of(dense(1)), regression, y, outputs)["loss"], (y - outputs[:, 0]) ** 2, rtol=1e-5
    )


def test_a_function_gets_targets_and_outputs_of_the_same_rank():
    y, outputs = RNG.normal(size=5).astype("float32"), LOGITS[:, :1]
    # Of y [5] and outputs [5, 1], the difference would be [5, 5], and its mean a plausible score.
    found = scores_of(model_of(dense(1)), lambda y, o: ops.mean(ops.square(o - y), axis=-1), y, outputs)
    np.testing.assert_allclose(found["loss"], (y - outputs[:, 0]) ** 2, rtol=1e-5)
    with pytest.raises(ValueError, match=r"were broadcast. Received: scores of shape \(5, 5\)"):
        scores_of(model_of(dense(1)), lambda y, o: ops.square(o[:, 0] - y), y, outputs)


@pytest.mark.parametrize(
    ("asked", "last", "outputs", "message"),
    [
        (classification, dense(3, "softmax"), LOGITS, "returns probabilities, from a softmax"),
        (probabilities, dense(3), LOGITS, "returns logits"),
        ("compiled", dense(3), LOGITS, "compiled with a single loss"),
        ("accuracy", dense(3), LOGITS, "'compiled'"),
        (None, dense(3, "relu"), LOGITS, "Cannot determine"),
        (None, dense(3), {"a": LOGITS, "b": LOGITS}, "several outputs"),
        (lambda y, outputs: ops.mean(outputs), dense(3), LOGITS, "Scores must be per example"),
        (regression, dense(3), LOGITS, "Targets must have the shape"),
        (None, dense(3, "sigmoid"), LOGITS, "Binary labels must be from 0 to 1"),
    ],
)
def test_unsuitable_scores_are_rejected(asked, last, outputs, message):
    with pytest.raises(ValueError, match=message):
        scores_of(model_of(last), asked, CLASSES, outputs)


def test_a_model_trained_with_squared_errors_is_not_a_binary_classifier():
    model = model_of(dense(1))
    model.compile(loss="mse")
    with pytest.raises(ValueError, match="is not a cross-entropy"):
        scorer(model, ops.zeros((5, 1)), None)


@slow_on_jax
@pytest.mark.parametrize(
    ("units", "activation", "y"), [(3, "softmax", CLASSES[:, None]), (1, "sigmoid", BINARY)], ids=["softmax", "sigmoid"]
)
def test_lesions_and_gradients_are_those_of_the_logits(units, activation, y):
    """Compiled, because TensorFlow's losses look for logits behind probabilities."""
    logits, chances = model_of(dense(units)), model_of(dense(units, activation))
    scramble(logits)
    logits.get_layer("h").transform_bias.assign(np.full(4, 2.0))
    chances.set_weights(logits.get_weights())
    expected, found = (lesion_layers(model, in_batches(X, y, 3)) for model in (logits, chances))
    assert abs(expected.cost()[0]) > 0.05
    np.testing.assert_allclose(found.cost(), expected.cost(), rtol=1e-4)
    np.testing.assert_array_equal(found.scores["accuracy"], expected.scores["accuracy"])
    (of_logits, of_chances) = (gradient_norms(model, X, y)["h"] for model in (logits, chances))
    assert of_chances == pytest.approx(of_logits, rel=1e-4)
    assert of_logits["kernel"] > 1e-3


@slow_on_jax
@pytest.mark.parametrize(("y", "ignored"), [(CLASSES, 1), (CLASSES, -1), (TOKENS, 255)])
def test_an_ignored_class_counts_in_no_score(y, ignored):
    """Also if the model does not have that class."""
    model, alone = scramble(model_of(dense(3), shape=(*y.shape[1:], 4))), model_of(dense(3))
    alone.set_weights(model.get_weights())
    x, labels = RNG.normal(size=(*y.shape, 4)).astype("float32"), np.where(y == 1, ignored, y)
    loss = losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored)
    found, expected = lesion_layers(model, in_batches(x, labels, 3), loss), lesion_layers(alone, (x[y != 1], y[y != 1]))
    assert found.intact == pytest.approx(expected.intact, rel=1e-5)
    assert found.cost() == pytest.approx(expected.cost(), rel=1e-4)
    assert gradient_norms(model, x, labels, loss)["h"] == pytest.approx(
        gradient_norms(alone, x[y != 1], y[y != 1])["h"], rel=1e-4
    )
    with pytest.raises(ValueError, match="every example has weight 0, is masked or ignored"):
        lesion_layers(model, (x, np.full_like(y, ignored)), loss)
    with pytest.raises(ValueError, match="every example is masked or ignored"):
        gradient_norms(model, x, np.full_like(y, ignored), loss)

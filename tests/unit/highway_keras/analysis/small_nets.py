"""Small nets of every kind with random weights, and the same nets without some layers."""

import keras
import numpy as np

from highway_keras import ConvHighway, Highway, HighwayStack
from highway_keras.layers.recording import call_name
from highway_keras.surgery import unstacked
from tests.unit.highway_keras.backend import scramble

CLASSES = 3
ZEROS = {"kernel_initializer": "zeros", "transform_initializer": "zeros"}


def layer(kind, name, policy, **arguments):
    return kind(name=name, dtype=policy, activation="tanh", **ZEROS, **arguments)


def classifier():
    return keras.layers.Dense(CLASSES, kernel_initializer="zeros", dtype="float32")


def dense(policy):
    """Builds a net with a separate carry gate and a layer called twice."""
    twice = layer(Highway, "twice", policy, dropout=0.3, seed=0)
    image = keras.Input((4,))
    x = layer(Highway, "single", policy, carry_gate="separate")(image)
    return keras.Model(image, classifier()(twice(twice(x))))


def stacked(policy):
    """Builds a net with a stack and a single layer."""
    image = keras.Input((5,))
    x = keras.layers.Dense(4, activation="tanh", kernel_initializer="zeros")(image)
    x = layer(HighwayStack, "stack", policy, depth=4)(x)
    return keras.Model(image, classifier()(layer(Highway, "single", policy)(x)))


def conv(policy):
    """Builds a convolutional net with two widths, residual sums, and a nested model."""
    inner = keras.Input((3, 3, 3))
    last = keras.Model(inner, layer(ConvHighway, "c3", policy, kernel_size=3, batch_normalization=True)(inner))
    x = image = keras.Input((6, 6, 2))
    for name, size in {"c1": 3, "c2": 1}.items():
        x = keras.layers.Add()([x, layer(ConvHighway, name, policy, kernel_size=size)(x)])
    x = keras.layers.Conv2D(3, 1, kernel_initializer="zeros")(keras.layers.MaxPooling2D()(x))
    return keras.Model(image, classifier()(keras.layers.Flatten()(last(x))))


class Subclassed(keras.Model):
    """Two layers in a subclassed model."""

    def __init__(self, policy):
        super().__init__()
        self.removed = ()
        self.several = [layer(Highway, name, policy) for name in ("first", "second")]
        self.last = classifier()
        self(np.zeros((1, 4), "float32"))

    def call(self, x):  # without `training`, as simple models are written
        for each in self.several:
            x = x if each.name in self.removed else each(x)
        return self.last(x)


NETS = {"dense": dense, "stacked": stacked, "conv": conv, "subclassed": Subclassed}
SHAPES = {"dense": (4,), "stacked": (5,), "conv": (6, 6, 2), "subclassed": (4,)}


def net(name, policy="float32"):
    return scramble(NETS[name](policy))


def examples(name, count=11):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, *SHAPES[name])).astype("float32")
    return x, rng.integers(0, CLASSES, count)


def without(model, removed):
    """Returns the model with some layers removed."""
    if isinstance(model, Subclassed):
        other = Subclassed("float32")
        other.set_weights(model.get_weights())
        other.removed = removed
        return other
    calls = set()

    def call(each, *args, **kwargs):
        key = call_name(each.name, calls)
        return args[0] if key in removed else each(*args, **kwargs)

    def rebuilt(graph):
        def same(each):
            return rebuilt(each) if isinstance(each, keras.Model) else each

        return keras.models.clone_model(graph, clone_function=same, call_function=call)

    return rebuilt(unstacked(model))

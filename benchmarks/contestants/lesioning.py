"""The loss of a 50-layer net with each of its layers closed in turn; the task names the method and the images.

A request is a number of images (0 only starts the process); the answer holds the loss without each layer.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.worker import Train, serve

BATCH = 500


def start(task: str) -> Train:
    """Builds the net; see `benchmarks.worker`."""
    settings = json.loads(task)
    from pipelines.core import frameworks

    frameworks.load()
    import highway_keras

    with np.load(settings["data"]) as arrays:
        images, labels = arrays["images"].astype("float32") / 255, arrays["labels"]
    net = highway_keras.from_preset("mnist_dense_50")
    _draw(net)
    way: Callable[[Any, Any, Any], list[float]] = {"ours": ours, "closed": closed, "rebuilt": rebuilt}[settings["way"]]

    def measure(count: int) -> dict[str, Any]:
        # Cycles through the images if there are fewer.
        places = np.arange(count) % len(images)
        return {"losses": way(net, images[places], labels[places]) if count else []}

    return measure


def ours(net: Any, x: Any, y: Any) -> list[float]:
    """Uses one program for all lesions, which computes the layers before a closed gate only once."""
    from highway_keras.analysis import in_batches, lesion_layers

    losses: list[float] = lesion_layers(net, in_batches(x, y, BATCH)).scores["loss"].tolist()
    return losses


def closed(net: Any, x: Any, y: Any) -> list[float]:
    """Sets weights that close the gates of a layer, and calls Keras's `evaluate`, which is compiled once."""
    if not net.compiled:
        _compile(net)
    stack, losses = net.get_layer("highway"), []
    kernel, bias = np.array(stack.transform_kernel), np.array(stack.transform_bias)
    for layer in range(stack.depth):
        shut_kernel, shut_bias = kernel.copy(), bias.copy()
        shut_kernel[layer], shut_bias[layer] = 0, -1e4
        stack.transform_kernel.assign(shut_kernel)
        stack.transform_bias.assign(shut_bias)
        losses.append(net.evaluate(x, y, batch_size=BATCH, verbose=0))
    stack.transform_kernel.assign(kernel)
    stack.transform_bias.assign(bias)
    return losses


def rebuilt(net: Any, x: Any, y: Any) -> list[float]:
    """Builds and compiles a net without the layer, for each layer in turn."""
    import highway_keras

    stack, losses = net.get_layer("highway"), []
    for layer in range(stack.depth):
        # `depth` counts the plain layer too, so this net has one highway layer fewer.
        less = highway_keras.from_preset("mnist_dense_50", depth=stack.depth)
        for old, new in zip(net.weights, less.weights, strict=True):
            new.assign(np.delete(old, layer, axis=0) if old.shape != new.shape else np.array(old))
        _compile(less)
        losses.append(less.evaluate(x, y, batch_size=BATCH, verbose=0))
    return losses


def _compile(net: Any) -> None:
    import keras

    # `highway train` compiles stacks with XLA too; it is faster on a CPU.
    net.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True)


def _draw(net: Any) -> None:
    """Draws the same kernels on every backend."""
    rng = np.random.default_rng(0)
    for variable in net.weights:
        if variable.name.endswith("kernel"):
            variable.assign(rng.normal(0, variable.shape[-2] ** -0.5, variable.shape).astype("float32"))


if __name__ == "__main__":
    serve(start, "highway-keras", "keras", "tensorflow-cpu", "jax")

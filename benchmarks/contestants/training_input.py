"""A recipe's input pipeline alone, training on it, or training without it; the task names which, and the recipe."""

import json
import time
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from benchmarks.worker import Train, serve
from pipelines import recipes
from pipelines.core import environment
from pipelines.data import batches, preprocess, sources
from pipelines.training import net as nets

LONG = 2**40


def start(task: str) -> Train:
    """Opens the data and builds the net; see `benchmarks.worker`."""
    settings = json.loads(task)
    config = recipes.get(settings["recipe"]).config
    info = sources.describe(config.data, None, config.validation)
    examples = sources.load(config.data, "train", None, config.validation)
    fitted = preprocess.fit(config.preprocess, examples.images)
    dataset = batches.of_config(config, examples, fitted, classes=len(info.labels), steps=LONG)
    if settings["what"] == "constant":
        # Detached from the pipeline, so that nothing prepares the next batch.
        dataset = tf.data.Dataset.from_tensors(next(iter(dataset))).repeat()
    model = None
    if settings["what"] != "alone":
        steps = len(examples) // config.batch_size
        net = nets.build(config, info, settings["precision"])
        accelerated = bool(environment.accelerators())
        model = nets.compiled(net, config, settings["precision"], steps, accelerated)
    return _training(model, iter(dataset))


def _training(model: keras.Model | None, taken: Iterator[Any]) -> Train:
    def train(steps: int) -> dict[str, Any]:
        waiting, losses = 0.0, []
        for _ in range(steps):
            asked = time.perf_counter()
            images, labels = next(taken)
            waiting += time.perf_counter() - asked
            losses.append(float(model.train_on_batch(images, labels)[0]) if model else 0.0)
        return {"losses": losses, "waiting": waiting}

    return train


if __name__ == "__main__":
    serve(start, "keras", "tensorflow-datasets")

"""Trains on a folder of images and answers with its accuracy on the test split, with `highway fit` or Keras alone."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.worker import Train, serve

SIDE = 64


def start(task: str) -> Train:
    """Chooses the method that the task names; see `benchmarks.worker`."""
    settings = json.loads(task)
    from pipelines.core import frameworks

    frameworks.load()
    way: Callable[[dict[str, Any]], float] = {"fit": fitted, "plain": plain}[settings["way"]]
    return lambda _: {"losses": [], "accuracy": way(settings)}


def fitted(settings: dict[str, Any]) -> float:
    """Runs `highway fit`, which evaluates and exports too."""
    from pipelines.verbs.cli import main

    folder = Path(settings["folder"])
    run, model = folder.with_name(f"{folder.name}_run"), folder.with_name(f"{folder.name}_model")
    words = ["fit", str(folder), "--minutes", str(settings["minutes"]), "--image-fit", "pad"]
    if main([*words, "--run", str(run), "--to", str(model)]):
        raise SystemExit("highway fit failed")
    return float(json.loads((run / "evaluation.json").read_bytes())["accuracy"])


def plain(settings: dict[str, Any]) -> float:
    """Trains the usual first net of tutorials: three convolutions with pooling, and Adam with its defaults."""
    import keras
    from keras import layers

    end = time.monotonic() + settings["seconds"]
    keras.utils.set_random_seed(settings["seed"])

    def images(split: str) -> Any:
        folder = f"{settings['folder']}/{split}"
        return keras.utils.image_dataset_from_directory(folder, image_size=(SIDE, SIDE), batch_size=32, verbose=0)

    blocks = [(layers.Conv2D(width, 3, activation="relu"), layers.MaxPooling2D()) for width in (32, 64, 128)]
    body = [layer for block in blocks for layer in block]
    net = keras.Sequential([layers.Rescaling(1 / 255), *body, layers.Flatten(), layers.Dense(3)])
    net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    train = images("train")
    while True:
        net.fit(train, verbose=0)
        if time.monotonic() > end:
            return float(net.evaluate(images("test"), verbose=0)[1])


if __name__ == "__main__":
    serve(start, "highway-keras", "keras", "tensorflow-cpu")

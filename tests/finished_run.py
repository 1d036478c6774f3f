"""Run directories of trained nets, without the training."""

import keras
import numpy as np

import highway_keras
from pipelines.core import run
from pipelines.core.config import Config, ModelConfig, Preprocess
from pipelines.data import preprocess

DIGITS = run.DataRecord(
    name="mnist_5k",
    version="1.0.0",
    shape=(28, 28, 1),
    labels=tuple("0123456789"),
    counts={"train": 4000, "validation": 500, "test": 500},
)


def tiny_net(seed=0):
    """Builds a tiny net for digits from both highway layers and a pool; all weights are random, biases too."""
    keras.utils.set_random_seed(seed)
    image = keras.Input((28, 28, 1), name="image")
    x = keras.layers.MaxPooling2D(4)(image)
    x = keras.layers.Conv2D(4, 3, activation="relu", padding="same")(x)
    x = highway_keras.ConvHighway(3)(x)
    x = keras.layers.Dropout(0.2)(keras.layers.Flatten()(x))
    x = highway_keras.Highway()(keras.layers.Dense(8, activation="tanh")(x))
    model = keras.Model(image, keras.layers.Dense(10, dtype="float32")(x))
    scramble(model, seed, scale=0.8)
    return model


def scramble(model, seed=0, scale=0.3):
    """Moves each weight by a random amount of this standard deviation, so that no bias stays at its start."""
    random = np.random.default_rng(seed)
    model.set_weights([weight + random.normal(0, scale, weight.shape) for weight in model.get_weights()])


def finished(path, model, policy="float32", data=DIGITS, **config):
    """Creates the run directory of a trained net.

    Args:
        path: the folder to create.
        model: the net.
        policy: the precision that it was trained in.
        data: the data that it was trained on.
        config: fields of the configuration.
    """
    settings = {
        "model": ModelConfig(preset="tiny"),
        "data": data.name,
        "preprocess": Preprocess(scale=1 / 256),
        **config,
    }
    record = run.Record(
        created="2030-01-01T00:00:00+00:00",
        command="highway train tiny",
        versions={"keras": keras.__version__},
        backend=keras.backend.backend(),
        code=run.Code(commit="0" * 40, dirty=True),
        machine=run.Machine(cpu="one", cpu_features=(), cores=1, accelerators=()),
        precision=run.Precision(policy=policy, reason="asked for"),
        data=data,
        parameters=model.count_params(),
        steps_per_epoch=40,
        metrics={"loss": 2.0, "val_accuracy": 0.1},
    )
    made = run.create(path, Config(recipe="tiny", **settings), record)
    mean = None
    if made.config.preprocess.mean != "none":
        mean = np.random.default_rng(0).random(data.shape, dtype="float32") / 2
    preprocess.save(preprocess.Fitted(made.config.preprocess, mean), path / "preprocess.npz")
    model.save(path / "model.keras")
    made.update(state="finished", step=40, seconds=3.0)
    return made

"""`python -m benchmarks.optimizers`: which optimizers train a stack as they train single layers.

    KERAS_BACKEND=jax python -m benchmarks.optimizers

A net with a stack and its unstacked twin start from the same weights and take the same full-batch steps. The losses
differ where an optimizer looks at a whole variable: a stack has one for the kernels of all layers.
"""

import argparse
import sys

import keras
import numpy as np

import highway_keras

LAYERS, UNITS, EXAMPLES, STEPS = 6, 8, 64, 40
# In the order of the table in docs/depth.md; an optimizer belongs to one model, so each is made anew.
OPTIMIZERS = {
    "SGD(0.05)": lambda: keras.optimizers.SGD(0.05),
    "SGD(0.05, global_clipnorm=0.05)": lambda: keras.optimizers.SGD(0.05, global_clipnorm=0.05),
    "Adam(0.01)": lambda: keras.optimizers.Adam(0.01),
    "AdamW(0.01)": lambda: keras.optimizers.AdamW(0.01),
    "Lion(0.003)": lambda: keras.optimizers.Lion(0.003),
    "SGD(0.05, clipnorm=0.05)": lambda: keras.optimizers.SGD(0.05, clipnorm=0.05),
    "Lamb(0.01)": lambda: keras.optimizers.Lamb(0.01),
    "Adafactor(0.01)": lambda: keras.optimizers.Adafactor(0.01),
    "Muon(0.01)": lambda: keras.optimizers.Muon(0.01),
}


def main(words: list[str] | None = None) -> int:
    """Trains, and prints a row of a Markdown table for each optimizer.

    Args:
        words: of the command line; None for those of this process.

    Returns:
        The exit status.
    """
    argparse.ArgumentParser(prog="python -m benchmarks.optimizers", description=__doc__).parse_args(words)
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(EXAMPLES, UNITS)), random.normal(size=(EXAMPLES, 1))
    inputs = keras.Input((UNITS,))
    deep = highway_keras.HighwayStack(LAYERS, activation="tanh", transform_bias=-1.0)(inputs)
    start = keras.Model(inputs, keras.layers.Dense(1)(deep))
    sys.stdout.write("| optimizer | stack | single layers |\n| --- | ---: | ---: |\n")
    for name, make in OPTIMIZERS.items():
        twins = keras.models.clone_model(start), highway_keras.surgery.unstacked(start)
        twins[0].set_weights(start.get_weights())
        losses = [loss(model, make(), x, y) for model in twins]
        sys.stdout.write(f"| `{name}` | {losses[0]:.3f} | {losses[1]:.3f} |\n")
        sys.stdout.flush()
    return 0


def loss(model: keras.Model, optimizer: keras.optimizers.Optimizer, x: np.ndarray, y: np.ndarray) -> float:
    """Mean squared error after training; the model is changed."""
    model.compile(optimizer, "mse")
    model.fit(x, y, batch_size=EXAMPLES, epochs=STEPS, verbose=0)
    return float(model.evaluate(x, y, batch_size=EXAMPLES, verbose=0))


if __name__ == "__main__":
    sys.exit(main())

"""Training with `Model.fit`, which both convolutional contestants on Keras share."""

import keras

from benchmarks.conv_problem import ConvProblem
from benchmarks.worker import Train


def fitting(model: keras.Model, problem: ConvProblem) -> Train:
    """Trains a compiled model on the same few batches; the loss is the cross-entropy, without penalties.

    Args:
        model: compiled, with a metric named "crossentropy".
        problem: for the data.
    """
    images, labels = problem.data()
    batches, batch = labels.shape
    done = 0

    def train(steps: int) -> list[float]:
        nonlocal done
        chosen = [(done + step) % batches for step in range(steps)]
        done += steps
        x = images[chosen].reshape(steps * batch, *images.shape[2:])
        y = keras.utils.to_categorical(labels[chosen].reshape(-1), 10)
        history = model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
        return history.history["crossentropy"]

    return train

"""Nets of the depth contrast, trained from their source's weights in its batches, against its recorded numbers.

One NumPy generator draws the weights of the source's nets and then the order of every epoch. The remaining difference
is Adam's epsilon: the source adds it to the root of the corrected second moment, Keras to that of the raw one. In
NumPy, either rule reproduces the loss of its side to six digits.
"""

import math

import keras
import numpy as np
import pytest

from pipelines import studies
from pipelines.data import preprocess, sources
from pipelines.data.selection import published_order
from pipelines.training.net import build, compiled

UNITS, BATCH, STEPS = 50, 128, 46
SIZES = {"train": (60_000, 6000), "test": (10_000, 2000)}
RECORDED = {5: (1.10364, 0.8805, 0.001), 30: (1.56812, 0.715, 0.02)}
"""By number of blocks: mean training loss and test accuracy of the first epoch, and how far our loss may be off."""


@pytest.fixture(scope="module")
def drawn(real_data):
    """Images and labels of both splits, in the order of the source."""
    generator = np.random.default_rng(0)
    config = studies.get("depth-contrast").arms["highway-5"].config
    found = {}
    for split, (count, taken) in SIZES.items():
        whole = sources.load("mnist", split, real_data("mnist"))
        chosen = published_order(split, count)[generator.permutation(count)[:taken]]
        images = preprocess.apply(preprocess.fit(config.preprocess, whole.images), whole.images[chosen])
        found[split] = np.asarray(images), whole.labels[chosen]
    return found


def source_weights(generator, blocks):
    """Draws weights as the source does, kernels as [out, in] and gates last, and returns them in our order."""

    def kernel(inputs, outputs):
        bound = 1 / math.sqrt(inputs)
        return generator.uniform(-bound, bound, (outputs, inputs)).T

    entry = kernel(28 * 28, UNITS)
    kernels, gates = (np.stack([kernel(UNITS, UNITS) for _ in range(blocks)]) for _ in range(2))
    zeros = np.zeros((blocks, UNITS))
    return [entry, zeros[0], kernels, zeros, gates, zeros - 2.0, kernel(UNITS, 10), np.zeros(10)]


@pytest.mark.parametrize("blocks", RECORDED)
def test_the_first_epoch_reproduces_the_source(drawn, real_data, blocks):
    loss, accuracy, within = RECORDED[blocks]
    config = studies.get("depth-contrast").arms[f"highway-{blocks}"].config
    net = build(config, sources.describe("mnist", real_data("mnist")), "float32")
    generator = np.random.default_rng(0)
    net.set_weights(source_weights(generator, blocks))
    images, labels = drawn["train"]
    order = generator.permutation(len(labels))[: STEPS * BATCH]
    model = compiled(net, config, "float32", STEPS, accelerated=False)
    targets = keras.utils.to_categorical(labels, 10)
    history = model.fit(images[order], targets[order], batch_size=BATCH, shuffle=False, verbose=0).history
    assert history["loss"][0] == pytest.approx(loss, abs=within)
    images, labels = drawn["test"]
    assert (net.predict(images, verbose=0).argmax(axis=1) == labels).mean() == pytest.approx(accuracy, abs=0.005)

"""Results of TensorFlow on one device and on two, to be compared; the process must have two."""

import keras
import numpy as np
import tensorflow as tf

from highway_keras.layers.normalization import FusedBatchNormalization
from pipelines.core.config import ModelConfig
from pipelines.core.optimizers import SGD
from pipelines.training import devices as placement
from pipelines.training import net
from tests.toy_data import CONVOLUTIONS, ToyData, toy_config

NETS = {
    "mixed_bfloat16": (toy_config(model=CONVOLUTIONS, optimizer=SGD(learning_rate=0.02)), "mixed_bfloat16"),
    # On one device, XLA compiles it, and draws other numbers than TensorFlow.
    "stack": (toy_config(model=ModelConfig(preset="mnist_dense_50", depth=4, width=12, dropout=0.3)), "float32"),
}
LAYERS = {
    "vectors": ((8, 5), {}, None),
    "maps": ((8, 3, 2, 5), {}, None),
    "channels_first": ((8, 5, 3), {"axis": 1}, None),
    "masked": ((8, 4, 5), {}, np.arange(4) < np.array([4, 4, 4, 1, 3, 1, 2, 1])[:, None]),
    "plain": ((8, 5), {"scale": False, "center": False}, None),
}


def trained(config, precision, devices):
    """Returns the loss of each of some steps, and then the variables of the net."""
    toy = ToyData()
    with placement.scope(devices):
        made = net.build(config, toy.describe("toy"), precision)
        model = net.compiled(made, config, precision, 1, False, devices=devices)
    examples = toy.load("toy", "train")
    images, labels = examples.images / np.float32(255), np.eye(4, dtype="float32")[examples.labels]
    losses = []
    for start in range(0, 80, 20):
        taken = slice(start, start + 20)
        losses += model.fit(images[taken], labels[taken], batch_size=20, shuffle=False, verbose=0).history["loss"]
    return {"losses": losses} | {f"{place}_{one.name}": one.numpy() for place, one in enumerate(made.variables)}


def normalized(shape, arguments, mask, devices):
    """Returns outputs, running statistics and gradients of batch normalization, of a batch divided among devices."""
    random = np.random.default_rng(0)
    x, upstream = random.normal(2, 1, shape).astype("float32"), random.normal(0, 1, shape).astype("float32")
    with placement.scope(devices):
        strategy = tf.distribute.get_strategy()
        keras.utils.set_random_seed(0)
        layer = FusedBatchNormalization(momentum=0.5, **arguments)
        layer.build((None, *shape[1:]))

    def part(array):
        parts = None if array is None else np.split(array, devices)
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )

    def step(x, upstream, mask):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True, mask=mask)
            loss = tf.reduce_sum(y * upstream)
        learned = [variable.value for variable in layer.trainable_variables]
        return y, *tape.gradient(loss, [x, *learned])

    mask = None if mask is None else part(mask)
    results = tf.function(lambda *parts: strategy.run(step, parts))(part(x), part(upstream), mask)
    y, slope, *learned = map(strategy.experimental_local_results, results)
    found = {"outputs": np.concatenate(y), "inputs": np.concatenate(slope)}
    found |= {f"learned_{number}": np.sum(parts, axis=0) for number, parts in enumerate(learned)}
    return found | {variable.name: variable.numpy() for variable in layer.non_trainable_variables}


def write(folder):
    """Writes the results of each net and layer on one device and on two, as NAME-DEVICES.npz."""
    for devices in (1, 2):
        for name, case in NETS.items():
            np.savez(folder / f"{name}-{devices}", **trained(*case, devices))
        for name, case in LAYERS.items():
            np.savez(folder / f"{name}-{devices}", **normalized(*case, devices))

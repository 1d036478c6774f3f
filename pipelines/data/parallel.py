"""How datasets use the cores: by fixed numbers, because tf.data's own tuning stalls training.

A thread of its own finds good values for `tf.data.AUTOTUNE`, and sleeps in between for 10 ms, then twice as long each
time, up to a minute. Who closes an iterator wakes it and waits for its end; but it can wake before it is marked as
cancelled (`Model::OptimizeLoop` calls back before `CancellationManager` sets its flag), and then sleeps its time out.
Measured on two cores: up to 2.3 s at the end of a training of 3 s, and 0.28 s after each of many short epochs, in
every second or third of them (docs/log.md). It gains nothing here: the input of CIFAR-10 is as fast without.
"""

import tensorflow as tf

from pipelines.core import environment

# Batches or examples worked on at once, and batches that lie ready.
CALLS = max(2, min(16, environment.cores()))
READY = 2


def fixed() -> tf.data.Options:
    """The option that keeps tf.data from tuning; for the outermost dataset.

    Example:
        dataset.map(function, num_parallel_calls=CALLS).prefetch(READY).with_options(fixed())
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options

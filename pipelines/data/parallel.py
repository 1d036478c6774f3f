"""Fixed parallelism for tf.data, whose autotuning stalls training.

The autotuning thread sleeps between adjustments for 10 ms, then twice as long each time, up to a minute. Closing an
iterator wakes the thread and waits for it to end; but it can wake before it is marked as cancelled
(`Model::OptimizeLoop` calls back before `CancellationManager` sets its flag), and then finishes its sleep. On two cores
this cost up to 2.3 s at the end of a training of 3 s, and 0.28 s after every second or third of many short epochs
(docs/log.md). Autotuning gains nothing here: the CIFAR-10 input is as fast without.
"""

import tensorflow as tf

from pipelines.core import environment

# Batches or examples processed in parallel, and batches prefetched.
CALLS = max(2, min(16, environment.cores()))
READY = 2


def fixed() -> tf.data.Options:
    """Returns the options that disable autotuning, for the outermost dataset.

    Example:
        dataset.map(function, num_parallel_calls=CALLS).prefetch(READY).with_options(fixed())
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options

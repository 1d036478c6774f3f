"""Fixed parallelism for tf.data, whose autotuning stalls training.

The autotuning thread sleeps between adjustments for 10 ms, then twice as long each time, up to a minute. Closing an
iterator wakes the thread and waits for it to end; but it can wake before it is marked as cancelled
(`Model::OptimizeLoop` calls back before `CancellationManager` sets its flag), and then finishes its sleep. On two cores
a short training can wait longer for it than it takes.
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

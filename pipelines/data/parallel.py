"""Fixed parallelism for tf.data, whose autotuning stalls training.

The autotuning thread sleeps for 10 ms between adjustments, then twice as long each time, up to a minute. Closing an
iterator wakes the thread and waits for it to end; but the thread can wake before it is marked as cancelled
(`Model::OptimizeLoop` calls back before `CancellationManager` sets its flag), and then sleeps on to the end. On two
cores, a short training can spend more time waiting for it than training.
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

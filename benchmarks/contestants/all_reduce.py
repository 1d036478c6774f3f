"""One of several processes that sum arrays as they sum gradients. The arguments are sizes in megabytes.

The first process prints a list of milliseconds for each size.
"""

import json
import sys
import time

import numpy as np

from pipelines.core import frameworks
from pipelines.core.hosts import of_environment
from pipelines.training.exchange import connect

WARM, TIMES = 5, 50


def main(sizes: list[float]) -> None:
    """Connects to the other processes, and measures."""
    hosts = of_environment()
    assert hosts, "the variables of the processes are set"
    frameworks.load()
    import jax

    exchange = connect(hosts, devices=1)
    summed = jax.jit(lambda parts: parts.sum(0), out_shardings=exchange.replicas.whole)
    found = []
    for size in sizes:
        parts = exchange.replicas.divided(np.ones((1, round(size * 1e6 / 4)), np.float32))
        times = []
        for _ in range(WARM + TIMES):
            started = time.perf_counter()
            total = summed(parts).block_until_ready()
            times.append(1e3 * (time.perf_counter() - started))
        assert total.addressable_data(0)[0] == hosts.count
        found.append(times[WARM:])
    exchange.end()
    if hosts.leads:
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main([float(size) for size in sys.argv[1:]])

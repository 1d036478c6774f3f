"""Peak rates of matrix products and copies in NumPy and PyTorch, on the number of threads set by the environment.

Usage: python -m benchmarks.contestants.matrix_products SECONDS bfloat16|float32, with the narrowest numbers to measure.
Prints JSON: floating-point operations per second, and bytes per second read and written.
"""

import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np

SIDE, COPY = 2048, 2**26
# The product of a highway block of 50 units in feature-major form: H and T at once, for a batch of 128.
SMALL, MANY = (100, 50, 128), 64


def best(work: Callable[[], object], amount: float, seconds: float) -> float:
    """Returns the highest rate seen: a roof is the reachable rate, not the typical one."""
    work()
    rate, until = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        work()
        rate = max(rate, amount / (time.perf_counter() - start))
    return rate


def in_numpy(seconds: float) -> dict[str, float]:
    """Measures NumPy."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIDE, SIDE), np.float32) for _ in range(2))
    m, k, n = SMALL
    u, v = rng.standard_normal((MANY, m, k), np.float32), rng.standard_normal((MANY, k, n), np.float32)
    out, small = np.empty_like(a), np.empty((MANY, m, n), np.float32)
    source, target = np.ones(COPY, np.float32), np.ones(COPY, np.float32)
    return {
        "float32": best(lambda: np.matmul(a, b, out=out), 2.0 * SIDE**3, seconds),
        "small": best(lambda: np.matmul(u, v, out=small), 2.0 * MANY * m * k * n, seconds),
        "copy": best(lambda: np.copyto(target, source), 8.0 * COPY, seconds),
    }


def in_torch(seconds: float, threads: int, narrowest: str) -> dict[str, float]:
    """Measures PyTorch, in bfloat16 too if asked."""
    import torch

    torch.set_num_threads(threads)
    a, b, out = (torch.randn(SIDE, SIDE) for _ in range(3))
    m, k, n = SMALL
    u, v, small = torch.randn(MANY, m, k), torch.randn(MANY, k, n), torch.empty(MANY, m, n)
    source, target = torch.ones(COPY), torch.ones(COPY)
    rates = {"float32": best(lambda: torch.mm(a, b, out=out), 2.0 * SIDE**3, seconds)}
    if narrowest == "bfloat16":
        c, d = a.bfloat16(), b.bfloat16()
        rates["bfloat16"] = best(lambda: torch.mm(c, d), 2.0 * SIDE**3, seconds)
    return rates | {
        "small": best(lambda: torch.bmm(u, v, out=small), 2.0 * MANY * m * k * n, seconds),
        "copy": best(lambda: target.copy_(source), 8.0 * COPY, seconds),
    }


if __name__ == "__main__":
    wanted = float(sys.argv[1])
    found = {"numpy": in_numpy(wanted)}
    try:
        found["PyTorch"] = in_torch(wanted, int(os.environ["OMP_NUM_THREADS"]), sys.argv[2])
    except ImportError:
        sys.stderr.write("PyTorch is not installed: its products are not measured\n")
    json.dump(found, sys.stdout)

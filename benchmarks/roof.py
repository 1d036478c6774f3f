"""The roof of the machine: peak rates of its matrix products and memory, measured in the same run."""

import json
import os
import subprocess
from collections.abc import Iterator

from benchmarks.controller import ROOT, Contestant, FailedError, python
from benchmarks.roster import CORES
from benchmarks.session import Benchmark, Roof, Session
from benchmarks.table import Row

MEASURES = {
    "float32": ("product of two 2048 x 2048 matrices", "float32", "GFLOP/s"),
    "bfloat16": ("product of two 2048 x 2048 matrices", "bfloat16", "GFLOP/s"),
    "small": ("products of 100 x 50 and 50 x 128, as of a block of 50 units", "float32", "GFLOP/s"),
    "copy": ("copy of 256 MiB, read and written", "float32", "GB/s"),
}


def run(session: Session) -> Iterator[Row]:
    """Measures on one core and on all, and sets the session's roof; without the peers' environment, leaves a note."""
    threads = _threads(session)
    rates: dict[str, float] = {}
    for count in threads:
        try:
            found = _rates(count, _seconds(session), "bfloat16" if session.has_bfloat16 else "float32")
        except (FailedError, subprocess.CalledProcessError) as error:
            session.note(f"roof: skipped: {error}")
            session.expect(-cost(session))
            return
        for library, values in found.items():
            for name, rate in values.items():
                measure, precision, unit = MEASURES[name]
                contestant = f"{library}, {count} {'core' if count == 1 else 'cores'}"
                template = Row("roof", measure, unit, precision=precision)
                yield from session.rows(template, {contestant: [rate / 1e9]}, {contestant: Contestant(contestant, "")})
                rates[name] = max(rates.get(name, 0.0), rate)
        session.spent(cost(session) / len(threads), f"roof on {count} of {CORES} cores")
    session.roof = Roof(rates["float32"], rates.get("bfloat16"), rates["small"], rates["copy"])


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return (4 + 8 * _seconds(session)) * len(_threads(session))


BENCHMARK = Benchmark("roof", "How fast are matrix products and copies on this machine?", run, cost)


def _threads(session: Session) -> list[int]:
    return [CORES] if session.quick else sorted({1, CORES})


def _seconds(session: Session) -> float:
    return 0.1 if session.quick else 2.0


def _rates(threads: int, seconds: float, narrowest: str) -> dict[str, dict[str, float]]:
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run(
        [str(python("peers")), "-m", "benchmarks.contestants.matrix_products", str(seconds), narrowest],
        cwd=ROOT,
        env={**os.environ, **limits},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)

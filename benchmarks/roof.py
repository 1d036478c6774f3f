"""The machine's roof: what its matrix products and its memory reach at most, measured in the same run."""

import json
import os
import subprocess
from dataclasses import dataclass

from benchmarks.controller import ROOT, Contestant, FailedError, python
from benchmarks.roster import CORES
from benchmarks.session import Session
from benchmarks.table import Row

MEASURES = {
    "float32": ("product of two 2048 x 2048 matrices", "float32", "GFLOP/s"),
    "bfloat16": ("product of two 2048 x 2048 matrices", "bfloat16", "GFLOP/s"),
    "small": ("products of 100 x 50 and 50 x 128, as of a block of 50 units", "float32", "GFLOP/s"),
    "copy": ("copy of 256 MiB, read and written", "float32", "GB/s"),
}


@dataclass(frozen=True)
class Roof:
    """The best of all libraries on all cores.

    Args:
        flops: floating-point operations a second in large float32 products.
        bfloat16_flops: in bfloat16; None where no library could tell.
        small_flops: in products as small as those of a step with 50 units.
        bandwidth: bytes a second read and written.
    """

    flops: float
    bfloat16_flops: float | None
    small_flops: float
    bandwidth: float


def measure(session: Session) -> tuple[Roof | None, list[Row]]:
    """Measures the roof on one core and on all.

    Args:
        session: of this run.

    Returns:
        The roof and its rows; None and no rows without the environment of the peers.
    """
    threads = sorted({1, CORES})
    seconds = _seconds(session)
    rows: list[Row] = []
    rates: dict[str, float] = {}
    for count in threads:
        try:
            found = _rates(count, seconds)
        except (FailedError, subprocess.CalledProcessError) as error:
            session.note(f"roof: skipped: {error}")
            session.expect(-cost(session))
            return None, []
        for library, values in found.items():
            for name, rate in values.items():
                measured, precision, unit = MEASURES[name]
                contestant = f"{library}, {count} {'core' if count == 1 else 'cores'}"
                template = Row("roof", measured, unit, precision=precision)
                rows += session.rows(template, {contestant: [rate / 1e9]}, {contestant: Contestant(contestant, "")})
                rates[name] = max(rates.get(name, 0.0), rate)
        session.spent(cost(session) / len(threads), f"roof on {count} of {CORES} cores")
    return Roof(rates["float32"], rates.get("bfloat16"), rates["small"], rates["copy"]), rows


def cost(session: Session) -> float:
    """About the seconds that `measure` takes."""
    return (4 + 8 * _seconds(session)) * len({1, CORES})


def _seconds(session: Session) -> float:
    return 0.3 if session.quick else 2.0


def _rates(threads: int, seconds: float) -> dict[str, dict[str, float]]:
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run(
        [str(python("peers")), "-m", "benchmarks.contestants.matrix_products", str(seconds)],
        cwd=ROOT,
        env={**os.environ, **limits},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)

"""The chief: draws the trials, hands them out over KerasTuner's gRPC service, and keeps what comes back."""

import errno
import os
import socket
import sys
import time
from pathlib import Path
from threading import Thread

from pipelines.errors import UserError
from pipelines.tuning import hparams, oracles, state, trials
from pipelines.tuning.endurance import LEASE
from pipelines.tuning.plan import Plan
from pipelines.tuning.worker import Worker

LOOK = 0.2
"""Seconds between two looks at who is still there."""
ASLEEP = 10.0
"""Seconds between two looks after which the chief itself was stopped, or the machine slept."""


def lead(plan: Plan, folder: Path, data_dir: Path | None, ends: float | None) -> None:
    """Leads a search until it is over, or its deadline passes.

    Args:
        plan: of the search.
        folder: of the search.
        data_dir: where prepared data lies; None for the default of TFDS.
        ends: the deadline, in seconds since 1970; None for none.

    Raises:
        UserError: the address cannot be had, or the data.
    """
    _try_address()
    oracle = oracles.make(plan, trials.objective(plan.config, data_dir))
    oracle.endure(plan, folder)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            Worker(plan, folder, oracle, data_dir).search()
        except BaseException as error:  # to be raised where it is seen
            failures.append(error)

    # KerasTuner's server knows of no deadline, and ends only when it has said so to every worker.
    Thread(target=serve, name="server", daemon=True).start()
    since, looked = None, time.time()
    while True:
        time.sleep(LOOK)
        if oracle.broken or failures:
            raise oracle.broken or failures[0]
        if time.time() - looked > ASLEEP:
            oracle.awake()
        looked = time.time()
        oracle.expire()
        if ends and time.time() > ends and not oracle.closed:
            oracle.close()
        if oracle.over or oracle.closed:
            since = since or time.monotonic()
            # Workers hear of it at their next sign of life.
            if not oracle.tuner_ids or time.monotonic() - since > LEASE:
                break
    kept = state.read(folder)
    if kept:
        hparams.write(folder, plan, kept)


def _try_address() -> None:
    """Finds out whether the address can be had: gRPC shares a port with whoever has it already."""
    host, port = os.environ["KERASTUNER_ORACLE_IP"], os.environ["KERASTUNER_ORACLE_PORT"]
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(found[0], socket.SOCK_STREAM) as probe:
            if sys.platform != "win32":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[4])
    except (OSError, ValueError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "another process listens there" if taken else str(error)
        raise UserError(
            f"the chief cannot listen at {host}:{port}: {why}. Set KERASTUNER_ORACLE_IP to an address of this machine "
            "and KERASTUNER_ORACLE_PORT to a free port."
        ) from None

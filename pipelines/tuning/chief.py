"""The chief: draws the trials, hands them out over KerasTuner's gRPC service, and keeps what comes back."""

import errno
import os
import socket
import sys
import time
from pathlib import Path
from threading import Thread

import keras

from pipelines.core.errors import UserError
from pipelines.training.prepare import prepare
from pipelines.tuning import hparams, oracles, state, trials
from pipelines.tuning.fault_tolerance import LEASE
from pipelines.tuning.plan import SearchPlan
from pipelines.tuning.space import Value, searched
from pipelines.tuning.worker import Worker

LOOK = 0.2
"""Seconds between two looks at who is still there."""
ASLEEP = 10.0
"""Seconds between two looks after which the chief itself was stopped, or the machine slept."""


def lead(plan: SearchPlan, folder: Path, data_dir: Path | None, ends: float | None) -> None:
    """Leads a search until it is over, or its deadline passes.

    Args:
        plan: of the search.
        folder: of the search.
        data_dir: where prepared data lies; None for the default of TFDS.
        ends: the deadline, in seconds since 1970; None for none.

    Raises:
        UserError: the address cannot be had, or the data, or no trial could be trained.
    """
    _try_address()
    oracle = oracles.make(plan, trials.objective(plan.config, data_dir))
    if state.read(folder) is None:
        _try_a_trial(plan, data_dir)
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
                # The last answer may still be on its way.
                time.sleep(LOOK)
                break
    kept = state.read(folder)
    if kept:
        hparams.write(folder, plan, kept)


def _try_a_trial(plan: SearchPlan, data_dir: Path | None) -> None:
    """Refuses a search whose trials cannot be trained, whatever is drawn."""
    space: dict[str, tuple[Value, ...]] = searched(plan.space)
    refusals: list[UserError] = []
    # Every choice and both ends of every range are tried until one setting can be trained, which is nearly always the
    # first.
    for turn in range(max(map(len, space.values()))):
        values = {name: bounds[turn % len(bounds)] for name, bounds in space.items()}
        if plan.nets:
            values["net"] = plan.nets[0].name
        try:
            prepare(plan.configured(values), data_dir)
        except UserError as error:
            refusals.append(error)
        else:
            return
        finally:
            keras.utils.clear_session()
    raise refusals[0]


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

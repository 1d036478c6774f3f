"""The chief: hands out trials over KerasTuner's gRPC service and records their results."""

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
from pipelines.tuning import results, search_state, trials
from pipelines.tuning.distributed import oracles
from pipelines.tuning.distributed.fault_tolerance import LEASE
from pipelines.tuning.distributed.worker import Worker
from pipelines.tuning.search_plan import SearchPlan
from pipelines.tuning.space import Value, searched

POLL = 0.2
"""Seconds between two checks of the workers."""
SUSPENDED = 10.0
"""Seconds between two checks after which the chief or the machine must have been suspended."""


def lead(plan: SearchPlan, folder: Path, data_dir: Path | None, ends: float | None) -> None:
    """Leads a search until it is over or its deadline passes.

    Args:
        plan: the plan of the search.
        folder: the folder of the search.
        data_dir: folder of prepared data; None for the TFDS default.
        ends: the deadline, in seconds since 1970; None for none.

    Raises:
        UserError: the address or the data are not available, or no trial can be trained.
    """
    _check_address()
    oracle = oracles.make(plan, trials.objective(plan.config, data_dir))
    if search_state.read(folder) is None:
        _check_trainable(plan, data_dir)
    oracle.make_fault_tolerant(plan, folder)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            Worker(plan, folder, oracle, data_dir).search()
        except BaseException as error:  # raised in the main thread below
            failures.append(error)

    # KerasTuner's server has no deadline and ends only once every worker has been dismissed.
    Thread(target=serve, name="server", daemon=True).start()
    since, checked = None, time.time()
    while True:
        time.sleep(POLL)
        if oracle.broken or failures:
            raise oracle.broken or failures[0]
        if time.time() - checked > SUSPENDED:
            oracle.awake()
        checked = time.time()
        oracle.expire()
        if ends and time.time() > ends and not oracle.closed:
            oracle.close()
        if oracle.over or oracle.closed:
            since = since or time.monotonic()
            # Workers learn of the end at their next heartbeat.
            if not oracle.tuner_ids or time.monotonic() - since > LEASE:
                # The last response may still be on its way.
                time.sleep(POLL)
                break
    state = search_state.read(folder)
    if state:
        results.write_hparams(folder, plan, state)


def _check_trainable(plan: SearchPlan, data_dir: Path | None) -> None:
    """Refuses a search if none of its settings can be trained."""
    space: dict[str, tuple[Value, ...]] = searched(plan.space)
    refusals: list[UserError] = []
    # Tries every choice and both ends of every range until one setting can be trained; nearly always the first can.
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


def _check_address() -> None:
    """Refuses an address in use: gRPC would share the port."""
    host, port = os.environ["KERASTUNER_ORACLE_IP"], os.environ["KERASTUNER_ORACLE_PORT"]
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(found[0], socket.SOCK_STREAM) as probe:
            if sys.platform != "win32":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[4])
    except (OSError, ValueError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "another process is listening there" if taken else str(error)
        raise UserError(
            f"the chief cannot listen at {host}:{port}: {why}. Set KERASTUNER_ORACLE_IP to an address of this machine "
            "and KERASTUNER_ORACLE_PORT to a free port."
        ) from None

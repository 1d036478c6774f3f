"""The processes that train one run together, from Keras's own environment variables. Imports no framework."""

import os
import re
from dataclasses import dataclass

from pipelines.core.config import Config
from pipelines.core.errors import UserError

ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
COUNT = "KERAS_DISTRIBUTION_NUM_PROCESSES"
INDEX = "KERAS_DISTRIBUTION_PROCESS_ID"


@dataclass(frozen=True)
class Hosts:
    """The processes that train one run together, as seen by one of them.

    Args:
        address: host and port at which the first process listens.
        count: number of processes.
        index: number of this process, from 0. The first one leads: it alone writes the run directory.
    """

    address: str
    count: int
    index: int

    @property
    def leads(self) -> bool:
        """True for the process that writes the run directory."""
        return self.index == 0

    @property
    def shard(self) -> tuple[int, int]:
        """Index and number of the part of each batch that this process trains on."""
        return self.index, self.count


def of_environment() -> Hosts | None:
    """Returns the processes that the environment describes; None if this process trains alone.

    Raises:
        UserError: only some of the three variables are set, one of them has an invalid value, or the backend is not
            JAX.

    Example:
        of_environment()  # Hosts("10.0.0.1:1234", count=2, index=0)
    """
    given = {name: os.environ.get(name, "").strip() for name in (ADDRESSES, COUNT, INDEX)}
    if not any(given.values()):
        return None
    if missing := [name for name, value in given.items() if not value]:
        raise UserError(
            f"training in several processes needs {ADDRESSES}, {COUNT} and {INDEX}, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing. Set all three, or none to train in one process."
        )
    count, index = _number(COUNT, given[COUNT]), _number(INDEX, given[INDEX])
    if not count:
        raise UserError(f"{COUNT} must be a whole number of at least 1. Received: {count}.")
    if not index < count:
        raise UserError(f"{INDEX} must be from 0 to {count - 1}, as {COUNT} is {count}. Received: {index}.")
    addresses = given[ADDRESSES].split(",")
    if len(addresses) not in (1, count) or not re.fullmatch(r"\S+:\d+", addresses[0]):
        raise UserError(
            f"{ADDRESSES} must be HOST:PORT of process 0, or one of these for each of the {count} processes. "
            f"Received: {given[ADDRESSES]}."
        )
    if count == 1:
        return None
    if (backend := os.environ.get("KERAS_BACKEND")) != "jax":
        raise UserError(f"several processes train one run on JAX only. Set KERAS_BACKEND=jax. Received: {backend}.")
    return Hosts(addresses[0], count, index)


def check_batch_size(config: Config, hosts: int, devices: int) -> None:
    """Refuses a batch size that cannot be divided evenly.

    Args:
        config: batch size and augmentation.
        hosts: number of processes that train together.
        devices: number of devices of each.

    Raises:
        UserError: as above.
    """
    unit = config.divisor(hosts, devices)
    if config.batch_size % unit:
        below = config.batch_size // unit * unit
        nearest = " or ".join(str(size) for size in (below, below + unit) if size)
        among = f"{hosts} processes" if devices == 1 else f"{devices} devices"
        if devices > 1 and hosts > 1:
            among = f"{hosts} processes with {devices} devices each"
        pairs = ", with an even number of images each to mix" if unit > devices * hosts else ""
        raise UserError(
            f"a batch of {config.batch_size} cannot be divided evenly among {among}{pairs}. Choose --batch-size "
            f"{nearest}. To resume a run, whose batch size is fixed, choose another number of processes or devices."
        )


def _number(name: str, value: str) -> int:
    if not value.isdecimal():
        raise UserError(f"{name} must be a whole number. Received: {value}.")
    return int(value)

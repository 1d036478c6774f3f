"""The processes that train one run together, from Keras's own environment variables. Imports no framework."""

import os
import re
from dataclasses import dataclass

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


def _number(name: str, value: str) -> int:
    if not value.isdecimal():
        raise UserError(f"{name} must be a whole number. Received: {value}.")
    return int(value)

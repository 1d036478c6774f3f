"""Messages between the processes that train one run together. JAX only.

They pass through the devices that train, so that the processes need no connections besides those of training.
"""

import ipaddress
import os
import re
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from pipelines.core.errors import UserError, chain
from pipelines.core.frameworks import hushed
from pipelines.core.hosts import ADDRESSES, Hosts
from pipelines.training.data_parallel import Replicas

HEARTBEAT = 15
"""Seconds without a sign of life after which a process counts as lost."""
PATIENCE = 3600
"""Seconds to wait for the other processes; the parent of this one ends it earlier."""
# What JAX, Gloo and NCCL say when a connection breaks, in errors of several types.
LOST = re.compile(r"^(UNAVAILABLE|DEADLINE_EXCEEDED):|gloo|nccl|coordination service|heartbeat", re.IGNORECASE)


class Exchange:
    """Messages between the processes that train one run together; all of them must call its methods in the same order.

    Args:
        hosts: the processes.
        devices: number of devices per process.

    Example:
        exchange = connect(hosts, devices=1)
        seed = exchange.share(b"7" if hosts.leads else b"")
        exchange.end()
    """

    def __init__(self, hosts: Hosts, devices: int) -> None:
        self.hosts = hosts
        self.replicas = Replicas(devices)

    @cached_property
    def _highest(self) -> Callable[[Any], Any]:
        import jax

        return jax.jit(jax.numpy.max, out_shardings=self.replicas.whole)

    def highest(self, number: int) -> int:
        """Returns the highest of the numbers that the processes pass.

        Args:
            number: a number of at most 31 bits.
        """
        own = np.full(len(self.replicas.local), number, np.int32)
        return int(self._highest(self.replicas.divided(own)).addressable_data(0))

    def share(self, message: bytes = b"") -> bytes:
        """Returns the message of the process that leads.

        Args:
            message: the message; ignored in the other processes.
        """
        import jax

        size = self.highest(len(message) if self.hosts.leads else 0)
        words = np.zeros((len(self.replicas.local), -(-size // 4)), np.uint32)
        if self.hosts.leads:
            words[0] = np.frombuffer(message.ljust(4 * words.shape[1], b"\0"), np.uint32)
        # All other rows are 0, and sums of integers are exact.
        total = jax.jit(lambda rows: rows.sum(0), out_shardings=self.replicas.whole)(self.replicas.divided(words))
        return np.asarray(total.addressable_data(0)).tobytes()[:size]

    def end(self) -> None:
        """Waits for all processes and disconnects them, so that none takes the exit of another for a crash."""
        import jax

        jax.distributed.shutdown()


def connect(hosts: Hosts, devices: int) -> Exchange:
    """Connects this process with the others, before any device is used.

    Args:
        hosts: the processes.
        devices: number of devices per process.

    Returns:
        The exchange, once all processes are there.

    Raises:
        UserError: the address cannot be used, or some process has fewer devices.
    """
    import jax

    _take_turns()
    if hosts.leads:
        _refuse_busy_port(hosts.address)
    # This service would handle SIGTERM in place of `signals`.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            hosts.address,
            hosts.count,
            hosts.index,
            initialization_timeout=PATIENCE,
            heartbeat_timeout_seconds=HEARTBEAT,
            # By default, JAX listens on all interfaces. Nothing is encrypted or authenticated.
            coordinator_bind_address=hosts.address if _is_loopback(hosts.address) else None,
            # In a job of SLURM, JAX would hide all GPUs but one.
            cluster_detection_method="deactivate",
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"process {hosts.index} cannot use the address {hosts.address} ({_first_line(error)}). {ADDRESSES} must be "
            "host and a free port of process 0."
        ) from error
    fewest = min(Counter(device.process_index for device in jax.devices()).values())
    if fewest < devices:
        raise UserError(
            f"--devices {devices} is more than some process has: {fewest}. Start all of them with the same command, "
            "on machines with as many devices."
        )
    exchange = Exchange(hosts, devices)
    # The first message connects all, while none is busy with something long. Gloo prints its connections.
    with hushed(1):
        exchange.highest(0)
    return exchange


def _take_turns() -> None:
    """Keeps the threads that this one starts from interrupting each other whenever a message arrives.

    On one core, an exchange otherwise takes a time slice of the system, some 4 ms, however little is sent: the thread
    that waits for messages polls on the core that the computation needs.
    """
    # Linux only; containers may forbid it.
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def is_lost(error: BaseException) -> bool:
    """Returns whether an error was caused by the loss of another process."""
    return any(isinstance(link, RuntimeError | ValueError) and LOST.search(str(link)) for link in chain(error))


def _refuse_busy_port(address: str) -> None:
    """Raises a `UserError` if this process cannot listen at an address; JAX would crash."""
    host, port = _host(address), int(address.rpartition(":")[2])
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host if _is_loopback(address) else "", port))
        except (OSError, OverflowError) as error:
            raise UserError(
                f"process 0 cannot listen at {address}: {error}. {ADDRESSES} must name a free port of process 0."
            ) from error


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _is_loopback(address: str) -> bool:
    host = _host(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]

import os
import socket
from threading import Thread

import jax
import pytest

from pipelines.core.errors import UserError
from pipelines.core.hosts import Hosts
from pipelines.training import exchange

LED = Hosts("localhost:1", 1, 0)


@pytest.fixture(scope="module")
def alone():
    """An exchange of a process with itself, through two devices."""
    return exchange.Exchange(LED, 2)


def test_the_highest_number_is_found(alone):
    assert [alone.highest(number) for number in (0, 7, 2**31 - 1)] == [0, 7, 2**31 - 1]


@pytest.mark.parametrize("message", [b"", b"1", b"1234", bytes(range(256)) + b"\0"])
def test_a_message_arrives_as_it_was_sent(alone, message):
    assert alone.share(message) == message


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("UNKNOWN: Gloo all-reduce failed: Connection reset by peer", True),
        ("INTERNAL: NCCL operation failed: unhandled system error", True),
        ("UNAVAILABLE: The coordination service has ended", True),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes", False),
    ],
)
def test_the_loss_of_a_process_is_distinguished_from_other_errors(text, lost):
    error, last = jax.errors.JaxRuntimeError(text), RuntimeError("Array has been deleted")
    last.__context__ = error
    assert {exchange.is_lost(one) for one in (error, last, ValueError(text))} == {lost}
    assert not exchange.is_lost(OSError(text))


def test_a_busy_port_is_refused():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(UserError, match=f"process 0 cannot listen at {address}: .*in use. .* a free port"):
            exchange._refuse_busy_port(address)
    exchange._refuse_busy_port(address)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1:1", True), ("[::1]:1", True), ("localhost:1", True), ("10.0.0.1:1", False), ("node7:1", False)],
)
def test_a_loopback_address_is_recognized(address, loopback):
    assert exchange._is_loopback(address) is loopback


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux has this policy")
def test_threads_of_a_process_that_trains_with_others_do_not_interrupt_each_other():
    found = []

    def connecting():
        exchange._take_turns()
        later = Thread(target=lambda: found.append(os.sched_getscheduler(0)))
        later.start()
        later.join()

    # In a thread of its own, because the policy stays.
    thread = Thread(target=connecting)
    thread.start()
    thread.join()
    assert found == [os.SCHED_BATCH]


def test_a_container_may_forbid_policies(monkeypatch):
    def forbid(*_):
        raise PermissionError("not in this container")

    monkeypatch.setattr(os, "sched_setscheduler", forbid, raising=False)
    exchange._take_turns()

import jax
import pytest

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
        ("UNAVAILABLE: The coordination service has ended", True),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes", False),
    ],
)
def test_the_loss_of_a_process_is_distinguished_from_other_errors(text, lost):
    error, last = jax.errors.JaxRuntimeError(text), RuntimeError("Array has been deleted")
    last.__context__ = error
    assert (exchange.is_lost(error), exchange.is_lost(last)) == (lost, lost)
    assert not exchange.is_lost(RuntimeError(text))


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1:1", True), ("[::1]:1", True), ("localhost:1", True), ("10.0.0.1:1", False), ("node7:1", False)],
)
def test_a_loopback_address_is_recognized(address, loopback):
    assert exchange._is_loopback(address) is loopback

import pytest

from pipelines.core.errors import UserError
from pipelines.core.hosts import ADDRESSES, COUNT, INDEX, Hosts, of_environment


@pytest.fixture
def found(monkeypatch):
    """A function that sets the variables and returns what they describe."""

    def run(addresses, count, index, backend="jax"):
        monkeypatch.setenv("KERAS_BACKEND", backend)
        for name, value in ((ADDRESSES, addresses), (COUNT, count), (INDEX, index)):
            monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
        return of_environment()

    return run


def test_without_the_variables_a_process_trains_alone(found):
    assert found("", "", "", backend="tensorflow") is None
    assert found("one:1", "1", "0", backend="tensorflow") is None


def test_the_first_address_is_that_of_the_process_that_leads(found):
    assert found("one:1234", "2", "0") == Hosts("one:1234", 2, 0)
    others = found("10.0.0.1:1,10.0.0.2:2", "2", "1")
    assert others == Hosts("10.0.0.1:1", 2, 1)
    assert (found("one:1234", "2", "0").leads, others.leads, others.shard) == (True, False, (1, 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("one:1", "2", ""), rf"{INDEX} is missing. Set all three, or none"),
        (("", "2", ""), rf"{ADDRESSES} and {INDEX} are missing"),
        (("one:1", "two", "0"), rf"{COUNT} must be a whole number. Received: two"),
        (("one:1", "0", "0"), rf"{COUNT} must be a whole number of at least 1. Received: 0"),
        (("one:1", "2", "-1"), rf"{INDEX} must be a whole number. Received: -1"),
        (("one:1", "2", "2"), rf"{INDEX} must be from 0 to 1, as {COUNT} is 2. Received: 2"),
        (("one", "2", "0"), "must be HOST:PORT of process 0, or one of these for each of the 2 processes"),
        (("one:1,two:2", "3", "0"), "for each of the 3 processes. Received: one:1,two:2"),
        (("one:1", "2", "0", "tensorflow"), "Set KERAS_BACKEND=jax. Received: tensorflow"),
    ],
)
def test_what_is_wrong_is_named(found, given, message):
    with pytest.raises(UserError, match=message):
        found(*given)

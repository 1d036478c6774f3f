"""Workers accept connections once they can answer, the first one before that."""

import asyncio
import threading

import pytest

from serving.engine.readiness import TICK, Readiness


def accepts(readiness):
    """Returns whether this process accepts connections now."""

    async def waited():
        await asyncio.wait_for(readiness.wait(threading.Event()), 3 * TICK)

    try:
        asyncio.run(waited())
    except TimeoutError:
        return False
    return True


def test_the_first_worker_answers_while_it_loads_and_the_others_once_it_has_loaded():
    readiness = Readiness(2)
    readiness.enter(0)
    readiness.update(loading=True)
    assert accepts(readiness)
    readiness.enter(1)
    assert not accepts(readiness)
    readiness.update(loading=False)
    # The first one would still refuse requests next to this one.
    assert not accepts(readiness)
    readiness.enter(0)
    readiness.update(loading=False)
    readiness.enter(1)
    assert accepts(readiness)


@pytest.mark.parametrize("worker", [0, 1])
def test_a_worker_that_replaces_another_accepts_connections_once_it_has_loaded(worker):
    readiness = Readiness(3)
    readiness.enter(2)
    readiness.update(loading=False)
    readiness.enter(worker)
    readiness.update(loading=True)
    assert not accepts(readiness)
    readiness.update(loading=False)
    assert accepts(readiness)


def test_the_first_worker_accepts_connections_again_once_no_worker_can_answer():
    readiness = Readiness(2)
    for worker in (0, 1):
        readiness.enter(worker)
        readiness.update(loading=False)
    readiness.leave(0)
    readiness.enter(0)
    assert not accepts(readiness)
    readiness.leave(1)
    assert accepts(readiness)


def test_a_first_worker_that_died_while_it_was_loading_holds_up_no_other():
    readiness = Readiness(2)
    assert accepts(readiness)
    readiness.enter(1)
    readiness.update(loading=False)
    assert not accepts(readiness)
    readiness.leave(0)
    assert accepts(readiness)
    # Its replacement waits until it has loaded its models.
    readiness.enter(0)
    assert not accepts(readiness)


def test_a_worker_that_should_stop_waits_no_longer():
    readiness, stopping = Readiness(2), threading.Event()
    readiness.enter(1)
    stopping.set()
    asyncio.run(asyncio.wait_for(readiness.wait(stopping), 60))

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from serving.engine import batching
from serving.engine.batching import Batcher, Cost, measure_cost
from serving.errors import BusyError


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as made:
        yield made


class Net:
    """Returns each image as its answer, and records the sizes of batches; can be held up."""

    def __init__(self):
        self.sizes = []
        self.free = threading.Event()
        self.free.set()

    def __call__(self, images):
        self.free.wait(10)
        self.sizes.append(len(images))
        if (images == 255).any():
            raise ValueError("white")
        return {"same": images.astype(np.float32)}


@pytest.fixture
def net():
    return Net()


@pytest.fixture(params=["thread", "loop"])
def batcher(request, net, executor, monkeypatch):
    """A batcher whose batches are computed in a thread, or on the event loop as if one had been timed."""
    monkeypatch.setattr(batching, "SHORT", 0.0 if request.param == "thread" else 1e9)
    made = Batcher(net, largest=8, queue=20, executor=executor)
    if request.param == "loop":
        made._seconds = 0.0
    return made


@pytest.fixture
def at_once(batcher):
    """The number of simultaneous requests that are computed at once, before the others form a batch."""
    return 1 if batcher._seconds == 0.0 else 0


def images(*values):
    return np.array(values, np.uint8)[:, None]


async def together(batcher, *requests):
    return await asyncio.gather(*(batcher.predict(request) for request in requests), return_exceptions=True)


def test_each_request_gets_its_own_answer(batcher, net):
    requests = [images(*range(number, number + 1 + number % 3)) for number in range(7)]
    answers = asyncio.run(together(batcher, *requests))
    for request, answer in zip(requests, answers, strict=True):
        np.testing.assert_array_equal(answer["same"], request)
    assert sum(net.sizes) == sum(map(len, requests))


def test_waiting_requests_are_batched(batcher, net, at_once):
    asyncio.run(together(batcher, *[images(number) for number in range(20)]))
    assert net.sizes == ([1, 8, 8, 3] if at_once else [8, 8, 4])


def test_a_lone_request_is_computed_at_once_until_others_come(batcher, net, at_once):
    async def some():
        await batcher.predict(images(1))
        await batcher.predict(images(2))
        await together(batcher, *[images(number) for number in range(4)])
        # The last batch had several: this may be the first of many.
        later = asyncio.create_task(batcher.predict(images(5)))
        await asyncio.sleep(0)
        before = len(net.sizes)
        await later
        await batcher.predict(images(6))
        return before

    before = asyncio.run(some())
    assert net.sizes == ([1, 1, 1, 3, 1, 1] if at_once else [1, 1, 4, 1, 1])
    assert before == len(net.sizes) - 2


@pytest.mark.parametrize(
    ("seconds", "lone", "elsewhere"), [(3e-3, True, False), (3e-3, False, True), (8e-3, True, True)]
)
def test_a_request_known_to_be_alone_may_take_longer_on_the_loop(executor, seconds, lone, elsewhere):
    used = []

    def run(images):
        used.append(threading.current_thread() is not threading.main_thread())
        return {"same": images}

    batcher = Batcher(run, largest=8, queue=20, executor=executor)
    batcher._seconds = seconds
    asyncio.run(batcher.predict(images(1), lone))
    assert used == [elsewhere]


def test_a_request_larger_than_a_batch_is_computed_alone(batcher, net):
    answers = asyncio.run(together(batcher, images(1), images(*range(12)), images(2)))
    assert net.sizes == [1, 12, 1]
    assert [len(answer["same"]) for answer in answers] == [1, 12, 1]


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("count", [1, 3])
def test_a_thread_that_cannot_be_started_stops_no_later_batch(net, no_thread_at_first, count, parallel):
    batcher = Batcher(net, largest=8, queue=20, executor=no_thread_at_first, parallel=parallel)
    batcher._seconds = 1.0

    async def twice():
        requests = [images(number) for number in range(count)]
        return [await asyncio.wait_for(together(batcher, *requests), 20) for _ in range(2)]

    first, second = asyncio.run(twice())
    # As after any batch that fails, each of several requests is computed again, alone.
    assert [str(answer) for answer in first if isinstance(answer, Exception)] == (
        ["can't start new thread"] if count == 1 else []
    )
    assert [answer["same"].item() for answer in second] == list(range(count))
    assert (batcher._running, batcher.waiting) == (0, 0)


def test_an_empty_request_is_answered(batcher):
    (answer,) = asyncio.run(together(batcher, np.zeros((0, 1), np.uint8)))
    assert answer["same"].shape == (0, 1)


def test_empty_requests_do_not_make_a_net_look_fast(executor):
    def run(images):
        return {"same": images}

    measured = []
    batcher = Batcher(run, largest=8, queue=20, executor=executor, measured=lambda *args: measured.append(args))
    batcher._seconds = 1.0
    asyncio.run(together(batcher, *[np.zeros((0, 1), np.uint8)] * 5))
    assert (batcher._seconds, measured, batcher.statistics.batches) == (1.0, [], {})


def test_requests_beyond_the_queue_are_refused_and_accepted_ones_answered(batcher, at_once):
    answers = asyncio.run(together(batcher, *[images(number) for number in range(30)]))
    refused = [answer for answer in answers if isinstance(answer, BusyError)]
    assert len(refused) == 10 - at_once
    assert "20 images are waiting" in str(refused[0])
    # Even before a batch has been measured.
    assert 0 < refused[0].after <= 1
    answered = 20 + at_once
    assert [int(answer["same"][0, 0]) for answer in answers[:answered]] == list(range(answered))


def test_an_error_affects_only_its_own_request(batcher, net):
    async def both():
        first = await together(batcher, images(1), images(2, 3), images(4, 255), images(5))
        return first, await batcher.predict(images(6))

    first, second = asyncio.run(both())
    assert [type(answer) for answer in first] == [dict, dict, ValueError, dict]
    assert [answer["same"].ravel().tolist() for answer in first if isinstance(answer, dict)] == [[1], [2, 3], [5]]
    assert second["same"][0, 0] == 6
    assert batcher.waiting == 0
    # Waiting is counted once per request, however often it is computed.
    assert batcher.statistics.waited.count == 5


def test_a_request_that_fails_alone_is_not_computed_again(batcher, net):
    (answer,) = asyncio.run(together(batcher, images(255)))
    assert (type(answer), net.sizes) == (ValueError, [1])


def test_a_batch_that_exceeds_the_memory_is_computed_one_by_one(executor):
    sizes = []

    def run(images):
        sizes.append(len(images))
        if len(images) > 2:
            raise MemoryError
        return {"same": images}

    batcher = Batcher(run, largest=8, queue=20, executor=executor)
    requests = [images(1), images(2, 3), images(4, 5, 6)]
    answers = asyncio.run(together(batcher, *requests))
    assert [type(answer) for answer in answers] == [dict, dict, MemoryError]
    assert sizes == [6, 1, 2, 3]


def test_requests_that_are_given_up_after_their_batch_failed_are_not_computed(net, executor, monkeypatch):
    monkeypatch.setattr(batching, "SHORT", 0.0)
    batcher = Batcher(net, largest=8, queue=20, executor=executor)

    async def give_up():
        net.free.clear()
        asked = [asyncio.create_task(batcher.predict(images(value))) for value in (1, 2, 255)]
        await asyncio.sleep(0.05)
        for one in asked:
            one.cancel()
        net.free.set()
        await asyncio.gather(*asked, return_exceptions=True)
        return await batcher.predict(images(3))

    assert asyncio.run(give_up())["same"][0, 0] == 3
    assert net.sizes == [3, 1]
    assert batcher.waiting == 0


def test_other_work_of_the_loop_comes_between_the_requests_of_a_failed_batch(net, executor, monkeypatch):
    monkeypatch.setattr(batching, "SHORT", 1e9)
    batcher = Batcher(net, largest=8, queue=20, executor=executor)
    batcher._seconds = 0.0
    seen = []

    async def watch(asked):
        while not all(one.done() for one in asked):
            seen.append(len(net.sizes))
            await asyncio.sleep(0)

    async def both():
        asked = [asyncio.create_task(batcher.predict(images(value))) for value in (0, 1, 2, 255)]
        await watch(asked)

    asyncio.run(both())
    # One at once, a batch of the others, and each of these alone.
    assert net.sizes == [1, 3, 1, 1, 1]
    assert {3, 4} <= {*seen}


def test_cancelled_requests_are_not_computed(net, executor, monkeypatch):
    monkeypatch.setattr(batching, "SHORT", 0.0)
    batcher = Batcher(net, largest=8, queue=20, executor=executor)

    async def give_up():
        net.free.clear()
        first = asyncio.create_task(batcher.predict(images(1)))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(batcher.predict(images(2)))
        third = asyncio.create_task(batcher.predict(images(3)))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        net.free.set()
        return await first, await third

    first, third = asyncio.run(give_up())
    assert (first["same"][0, 0], third["same"][0, 0]) == (1, 3)
    assert net.sizes == [1, 1]
    assert batcher._images == 0


class Together:
    """Returns images once this many batches are being computed at the same time."""

    def __init__(self, batches):
        self.barrier = threading.Barrier(batches)
        self.sizes = []

    def __call__(self, images):
        self.sizes.append(len(images))
        self.barrier.wait(10)
        return {"same": images.astype(np.float32)}


def test_cores_share_the_queue_evenly():
    net = Together(2)
    with ThreadPoolExecutor(2) as executor:
        batcher = Batcher(net, largest=8, queue=20, executor=executor, parallel=2)
        batcher._seconds = 1.0
        answers = asyncio.run(together(batcher, *[images(number) for number in range(6)]))
    assert net.sizes == [3, 3]
    assert [int(answer["same"][0, 0]) for answer in answers] == list(range(6))


def test_parts_that_would_save_no_time_are_one_batch():
    async def later(batcher):
        await batcher.predict(images(9))
        return await together(batcher, *[images(number) for number in range(6)])

    # Nearly all of the time is that of a batch, whatever its images.
    cost = Cost(fixed=1.0, image=batching.LONG / 10)
    net = Together(1)
    with ThreadPoolExecutor(2) as executor:
        asyncio.run(later(Batcher(net, largest=8, queue=20, executor=executor, parallel=2, cost=cost)))
    assert net.sizes == [1, 6]


def test_the_first_batch_is_computed_in_a_thread_however_short(executor):
    used = []

    def run(images):
        used.append(threading.current_thread() is threading.main_thread())
        return {"same": images}

    batcher = Batcher(run, largest=8, queue=20, executor=executor, cost=Cost(fixed=0.0, image=1e-6))
    for _ in range(2):
        asyncio.run(batcher.predict(images(1)))
    assert used == [False, True]


@pytest.mark.parametrize(("scale", "calls", "most"), [(1e-4, 60, 9), (1.0, 3, 2)])
def test_cost_is_measured_as_the_least_of_several(monkeypatch, scale, calls, most):
    clock, sizes = [0.0], []

    def run(images):
        # The first calls with a size are slow.
        warm = len(images) in sizes[:-1]
        sizes.append(len(images))
        clock[0] += scale * (0.5 + 0.25 * len(images)) * (1 if warm else 3)

    monkeypatch.setattr(batching.time, "thread_time", lambda: clock[0])
    cost = measure_cost(run, np.zeros((9, 1)))
    assert (cost.fixed, cost.image) == pytest.approx((scale * 0.5, scale * 0.25))
    # A slow net is not held up by many calls, or by many images.
    assert {*sizes} == {1, most}
    assert 3 <= sizes.count(most) <= calls


def test_the_cost_of_an_image_follows_the_batches(executor, monkeypatch):
    clock = [0.0]

    def run(images):
        clock[0] += 0.5 + 0.25 * len(images)
        return {"same": images}

    monkeypatch.setattr(batching.time, "thread_time", lambda: clock[0])
    batcher = Batcher(run, largest=8, queue=20, executor=executor, cost=Cost(fixed=0.5, image=1.0))
    for _ in range(50):
        asyncio.run(batcher.predict(images(1, 2)))
    assert batcher._seconds == pytest.approx(0.25, rel=0.02)


def test_a_short_batch_waits_for_the_running_one(net):
    async def late(batcher):
        net.free.clear()
        # The time per image is unknown before the first batch.
        first = asyncio.create_task(batcher.predict(images(1)))
        await asyncio.sleep(0.01)
        batcher._seconds = batching.LONG / 3
        others = [asyncio.create_task(batcher.predict(images(number))) for number in (2, 3)]
        await asyncio.sleep(0.01)
        assert batcher.waiting == 2
        # A fourth image makes the batch worth a core.
        others += [asyncio.create_task(batcher.predict(images(number))) for number in (4, 5)]
        await asyncio.sleep(0.01)
        assert batcher.waiting == 0
        net.free.set()
        return await asyncio.gather(first, *others)

    with ThreadPoolExecutor(2) as executor:
        asyncio.run(late(Batcher(net, largest=8, queue=20, executor=executor, parallel=2)))
    assert sorted(net.sizes) == [1, 4]


def test_requests_that_are_computed_at_once_count_as_not_waiting(batcher, net):
    for value in range(3):
        asyncio.run(batcher.predict(images(value)))
    assert batcher.statistics.waited.count == len(net.sizes) == 3

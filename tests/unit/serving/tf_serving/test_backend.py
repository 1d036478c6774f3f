"""Versions that a server predicts with, over a fake connection."""

import asyncio

import numpy as np
import pytest

from serving import manifest
from serving.engine.settings import Settings
from serving.errors import BusyError, UnavailableError
from serving.model import open_without_graph
from serving.tf_serving.backend import RemoteVersion

IMAGES = np.random.default_rng(0).integers(0, 256, (10, 4, 3, 1), dtype="uint8")


class Connection:
    """Answers with the first pixels of each image, once `may` is set."""

    address = "there:8500"

    def __init__(self):
        self.sizes, self.state_of = [], "AVAILABLE"
        self.may = asyncio.Event()
        self.may.set()

    async def state(self, model, version, timeout):
        if isinstance(self.state_of, Exception):
            raise self.state_of
        return self.state_of

    async def predict(self, model, version, images, outputs, timeout):
        assert (model, version, outputs) == ("digits", 3, ("probabilities",))
        self.sizes.append(len(images))
        await self.may.wait()
        return {"probabilities": first_pixels(images)}


def first_pixels(images):
    return images.reshape(len(images), -1)[:, :4].astype("float32")


@pytest.fixture
def connection():
    return Connection()


@pytest.fixture
def remote(version, connection):
    opened = open_without_graph(version, manifest.read(version))
    return RemoteVersion("digits", 3, opened, connection, Settings(version.parents[1], batch=4, queue=12))


def test_a_large_request_is_split_into_parts_that_the_server_accepts(remote, connection):
    found = asyncio.run(remote.predict(IMAGES))
    assert connection.sizes == [4, 4, 2]
    np.testing.assert_array_equal(found["probabilities"], first_pixels(IMAGES))


def test_an_empty_batch_sends_no_request(remote, connection):
    assert asyncio.run(remote.predict(IMAGES[:0]))["probabilities"].shape == (0, 4)
    assert connection.sizes == []


def test_concurrent_requests_are_sent_up_to_the_limit(remote, connection):
    async def ask():
        connection.may.clear()
        first = [asyncio.create_task(remote.predict(IMAGES[:4])) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await remote.predict(IMAGES[:1])
        connection.may.set()
        await asyncio.gather(*first)
        # The refused request took no place, and the answered ones have freed theirs.
        await remote.predict(IMAGES)

    asyncio.run(ask())
    assert connection.sizes == [4, 4, 4, 4, 4, 2]


def test_a_cancelled_request_frees_its_place(remote, connection):
    async def ask():
        connection.may.clear()
        waiting = asyncio.create_task(remote.predict(IMAGES))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        connection.may.set()
        await remote.predict(IMAGES)

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("state", "ready"),
    [("AVAILABLE", True), ("LOADING", False), (UnavailableError("away"), False), (TimeoutError(), False)],
)
def test_a_version_is_ready_when_the_server_says_so(remote, connection, state, ready):
    connection.state_of = state
    assert asyncio.run(remote.ready()) is ready


def test_outputs_of_another_shape_are_refused(remote, connection):
    async def other(*_):
        return {"probabilities": np.zeros((10, 5), "float32")}

    connection.predict = other
    with pytest.raises(UnavailableError, match=r"there:8500 .* the shape \(10, 5\) for 4 images"):
        asyncio.run(remote.predict(IMAGES))

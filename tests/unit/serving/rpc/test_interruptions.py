"""Interruptions by clients, models and the system, which must neither end the checks nor go unrecorded."""

import asyncio
import errno
import re

import pytest
from grpc_health.v1 import health_pb2

from serving.engine.about import About
from serving.engine.batching import Batcher
from serving.errors import UnknownModelError
from serving.rpc import connections
from serving.rpc.calls import CallLimits
from serving.rpc.connections import ConnectionLimits
from tests.endpoint import eventually

from .served import infer_request


@pytest.fixture
def started(monkeypatch):
    """Predictions that have begun; none ends."""
    found = []

    async def endless_predict(*_):
        found.append(True)
        await asyncio.sleep(60)

    monkeypatch.setattr(Batcher, "predict", endless_predict)
    return found


def test_a_call_that_the_client_cancels_is_an_error_in_metrics(served, started):
    def cancelled():
        series = 'highway_errors_total{kind="disconnected",model="tiny",version="1"}'
        lines = served.http.get("/metrics").text.splitlines()
        return [line for line in lines if line.startswith(series)]

    before, call = cancelled(), served.inference.ModelInfer.future(infer_request())
    eventually(lambda: started)
    call.cancel()
    eventually(lambda: cancelled() != before)


def test_a_call_whose_connection_breaks_leaves_nothing_behind(served, started):
    def held():
        metrics = served.http.get("/metrics").text
        return re.findall(r"^highway_bodies_bytes (\S+)$", metrics, re.MULTILINE)

    call = served.inference.ModelInfer.future(infer_request())
    eventually(lambda: started)
    assert held() != ["0.0"]
    served.channel.close()
    eventually(lambda: held() == ["0.0"])
    assert call.done()


def test_an_error_of_a_check_does_not_end_the_checks_of_health(served, monkeypatch):
    check, errors = About.check_ready, [UnknownModelError("there is no model 'tiny'.")]

    async def failing_check(about):
        if errors:
            raise errors.pop()
        await check(about)

    def status():
        return served.health.Check(health_pb2.HealthCheckRequest()).status

    eventually(lambda: status() == health_pb2.HealthCheckResponse.SERVING)
    monkeypatch.setattr(About, "check_ready", failing_check)
    eventually(lambda: not errors)
    served.settings.draining.set()
    eventually(lambda: status() == health_pb2.HealthCheckResponse.NOT_SERVING)


def test_an_error_of_the_system_does_not_end_the_checks_of_connections(monkeypatch):
    checks = []

    class Checked(ConnectionLimits):
        def check(self):
            checks.append(True)
            raise OSError(errno.EMFILE, "Too many open files")

    async def enforced():
        task = asyncio.create_task(Checked(1, 1, CallLimits(1.0, 1)).enforce())
        async with asyncio.timeout(20):
            while len(checks) < 2:
                await asyncio.sleep(0.01)
        task.cancel()

    monkeypatch.setattr(connections, "_INTERVAL", 0.0)
    asyncio.run(enforced())

"""Messages that arrive slowly, over gRPC: they are cut off, and make room for those of others."""

import asyncio
import socket
from contextlib import ExitStack

import grpc
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2

from serving.engine.settings import Limits
from serving.rpc import calls
from tests.endpoint import eventually

from .served import Served, incomplete, infer_request

Code = grpc.StatusCode


def test_slow_clients_are_cut_off(settings):
    with Served(settings, Limits(header=0.3, body=0.3, idle=0.3)) as served:
        for method in ("inference.GRPCInferenceService/ModelInfer", "grpc.health.v1.Health/Check"):
            with incomplete(served, method) as call:
                assert (call.code(), call.details()) == (
                    Code.DEADLINE_EXCEEDED,
                    "the message did not come within 0.3 s.",
                )
        with socket.create_connection(served.address, 20) as silent:
            while silent.recv(2**16):
                pass


def test_a_slow_message_makes_room_for_others(settings, monkeypatch):
    monkeypatch.setattr(calls, "ARRIVING", 1)
    monkeypatch.setattr(calls, "HURRY", 0.1)
    with Served(settings, Limits(body=60)) as served, ExitStack() as stack:
        slow = [stack.enter_context(incomplete(served)) for _ in range(3)]
        # These and this request itself.
        eventually(lambda: "highway_requests_in_flight 4.0" in served.http.get("/metrics").text)
        assert served.inference.ModelInfer(infer_request()).model_version == "1"
        assert [(call.code(), call.details()) for call in slow] == [
            (Code.DEADLINE_EXCEEDED, "the message took longer than 0.1 s while others were waiting.")
        ] * 3


def test_health_does_not_wait_for_slow_messages(settings, monkeypatch):
    # No slow message makes room before the end of the test.
    monkeypatch.setattr(calls, "HURRY", 60)
    with Served(settings, Limits(body=60)) as served, ExitStack() as stack:
        slow = [stack.enter_context(incomplete(served)) for _ in range(2 * calls.ARRIVING)]
        # These and this request itself.
        eventually(lambda: f"highway_requests_in_flight {len(slow) + 1}.0" in served.http.get("/metrics").text)
        assert served.health.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=20).status
        assert served.inference.ServerLive(service_pb2.ServerLiveRequest(), timeout=20).live


def test_slow_health_checks_make_room_for_others(settings, monkeypatch):
    # Only checks make room before the end of the test.
    monkeypatch.setattr(calls, "HURRY", 60)
    method = "inference.GRPCInferenceService/ServerLive"
    with Served(settings, Limits(body=60)) as served, ExitStack() as stack:
        slow = [stack.enter_context(incomplete(served, method)) for _ in range(2 * calls.CHECKS)]
        eventually(lambda: any(call.done() for call in slow))
        assert served.inference.ModelInfer(infer_request(), timeout=20).model_version == "1"
        assert served.health.Check(health_pb2.HealthCheckRequest(), timeout=20).status
        code, said = next((call.code(), call.details()) for call in slow if call.done())
        assert code == Code.DEADLINE_EXCEEDED
        assert said == "the message took longer than 0.02 s while others were waiting."


def test_places_go_to_the_newest_and_none_is_lost():
    async def order():
        places, order = calls.NewestFirst(2), []

        async def take(name):
            await places.acquire()
            order.append(name)

        tasks = [asyncio.create_task(take(name)) for name in "abcdef"]
        await asyncio.sleep(0)
        assert (order, places.locked()) == (["a", "b"], True)
        tasks[4].cancel()
        await asyncio.sleep(0)
        places.release()
        # Cancelled before it knows that it has its turn, which goes to the next.
        tasks[5].cancel()
        await asyncio.gather(*tasks[4:], return_exceptions=True)
        await asyncio.sleep(0)
        assert order == ["a", "b", "d"]
        # Both are cancelled, and passed over, in the same step.
        tasks[2].cancel()
        places.release()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == ["a", "b", "d"]
        assert not places.locked()
        places.release()
        await places.acquire()
        await places.acquire()
        return places.locked()

    assert asyncio.run(order())

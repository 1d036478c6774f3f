"""Limits on calls: neither those of others nor watches of health take the place of health checks."""

from contextlib import ExitStack
from functools import partial
from unittest.mock import Mock

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2

from serving.engine.settings import Limits
from serving.errors import BusyError
from serving.rpc import calls
from serving.rpc.calls import CallLimits
from serving.rpc.server import STREAMS
from tests.endpoint import eventually

from .served import Served


def call(address, ended):
    """Returns the context of a call, and adds the function that ends it to a list."""
    context = Mock(**{"peer.return_value": f"ipv4:{address}:1024"})
    context.add_done_callback = lambda end: ended.append(partial(end, context))
    return context


def test_calls_are_limited_in_total_but_for_health_checks(monkeypatch):
    monkeypatch.setattr(calls, "CALLS", 3)
    limits, ended = CallLimits(60, 64), []
    for address, kind in (("10.0.0.1", "call"), ("10.0.0.1", "watch"), ("10.0.0.2", "watch")):
        limits.begin(call(address, ended), kind)
    for kind in ("call", "watch"):
        with pytest.raises(BusyError, match="3 calls are in progress, the limit"):
            limits.begin(call("10.0.0.3", ended), kind)
    for _ in range(5):
        limits.begin(call("10.0.0.3", ended), "check")
    while ended:
        ended.pop()()
    assert (limits.others, limits.by_address, limits.watches) == (0, {}, {})


def test_an_address_may_watch_health_a_few_times():
    limits, ended = CallLimits(60, 64), []
    for _ in range(4):
        limits.begin(call("10.0.0.1", ended), "watch")
    with pytest.raises(BusyError, match="health is watched 4 times from this address"):
        limits.begin(call("10.0.0.1", ended), "watch")
    limits.begin(call("10.0.0.1", ended), "call")
    limits.begin(call("10.0.0.2", ended), "watch")
    # At least once, however few calls it may have.
    CallLimits(60, 1).begin(call("10.0.0.1", ended), "watch")


def test_health_is_answered_while_all_other_calls_are_taken(settings):
    with Served(settings, Limits(address=2 * calls.WATCHES * calls.CALLS)) as served, ExitStack() as stack:
        watches = []
        for _ in range(calls.CALLS // STREAMS + 1):
            own = [("grpc.use_local_subchannel_pool", 1)]
            channel = stack.enter_context(grpc.insecure_channel("{}:{}".format(*served.address), own))
            watch = health_pb2_grpc.HealthStub(channel).Watch
            watches += [watch(health_pb2.HealthCheckRequest()) for _ in range(STREAMS)]
        # The others stay open.
        refused = len(watches) - calls.CALLS
        eventually(lambda: sum(one.done() for one in watches) == refused)
        said = next(one.details() for one in watches if one.done())
        assert said.startswith("1,024 calls are in progress, the limit.")
        assert served.health.Check(health_pb2.HealthCheckRequest(service="liveness")).status
        assert served.inference.ServerLive(service_pb2.ServerLiveRequest()).live

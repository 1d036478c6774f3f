"""The standard health service: readiness of the server and its services, and liveness.

The one of `grpcio-health-checking` waits for a request, and for the end of `Watch`, without a limit.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from serving.engine.about import About
from serving.engine.processes import SMALL
from serving.errors import ServingError
from serving.requests.refusals import refusal
from serving.rpc.calls import CODES, CallLimits, Kind

SERVICE = "grpc.health.v1.Health"
# Name of the entry for liveness; readiness has the empty name, as in gRPC's specification.
LIVENESS = "liveness"
# Seconds between two checks of the state.
TICK = 0.1
log = logging.getLogger(__name__)


class Health:
    """State of the server and its services.

    Args:
        about: checks readiness.
        services: names of the services.
        limits: limits on calls.
    """

    def __init__(self, about: About, services: Iterable[str], limits: CallLimits) -> None:
        self._about, self._limits = about, limits
        self._statuses = dict.fromkeys(("", *services), HealthCheckResponse.NOT_SERVING)
        self._statuses[LIVENESS] = HealthCheckResponse.SERVING

    def handlers(self) -> grpc.GenericRpcHandler:
        """Returns the handlers of the service's methods."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.stream_unary_rpc_method_handler(self._check),
                "Watch": grpc.stream_stream_rpc_method_handler(self._watch),
            },
        )

    async def update(self) -> None:
        """Checks readiness regularly, and as soon as the endpoint is about to stop."""
        settings, clock = self._about.settings, asyncio.get_running_loop().time
        while True:
            status = HealthCheckResponse.SERVING
            try:
                await self._about.check_ready()
            except ServingError:
                status = HealthCheckResponse.NOT_SERVING
            except Exception:
                # Otherwise the task would end, and the last state would stay for ever.
                status = HealthCheckResponse.NOT_SERVING
                if self._statuses[""] != status:
                    log.exception("readiness could not be checked")
            self._statuses.update(dict.fromkeys(self._statuses.keys() - {LIVENESS}, status))
            due, was_draining = clock() + settings.poll, settings.draining.is_set()
            while clock() < due and settings.draining.is_set() == was_draining:
                await asyncio.sleep(TICK)

    async def _check(self, _: object, context: Any) -> bytes:
        name = await self._requested(context, "check")
        if name not in self._statuses:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {name!r}.")
        response = _response(self._statuses[name])
        self._limits.answered(context, len(response))
        return response

    async def _watch(self, _: object, context: Any) -> None:
        name, last = await self._requested(context, "watch"), None
        while not self._about.settings.closing.is_set():
            if (status := self._statuses.get(name, HealthCheckResponse.SERVICE_UNKNOWN)) != last:
                last = status
                await context.write(_response(status))
            await asyncio.sleep(TICK)
        await context.write(_response(HealthCheckResponse.NOT_SERVING))

    async def _requested(self, context: Any, kind: Kind) -> str:
        """Returns the name in a request, or aborts the call."""
        try:
            self._limits.begin(context, kind)
            return _name(await self._limits.checks.read(context))
        except DecodeError:
            code, message = grpc.StatusCode.INVALID_ARGUMENT, "the message is not a HealthCheckRequest."
        except ServingError as error:
            status, message, _ = refusal(error)
            code = CODES[status]
        # Not while an error is handled: an aborted call would keep it, and with it the message, until garbage is
        # collected.
        await context.abort(code, message)
        raise AssertionError


def _name(request: bytes) -> str:
    # A watch keeps its name.
    if len(request) > SMALL:
        raise DecodeError
    return HealthCheckRequest.FromString(request).service


def _response(status: int) -> bytes:
    return HealthCheckResponse(status=status).SerializeToString()

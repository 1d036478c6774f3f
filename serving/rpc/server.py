"""The gRPC server, in the event loop of the HTTP server and with the same models, limits and keys."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from serving.engine.about import About
from serving.engine.settings import Settings
from serving.errors import ModelError
from serving.http.app import Shared
from serving.rpc import open_inference, tf_serving
from serving.rpc.calls import handler

# Calls of one connection, and of all connections, that may be in progress.
STREAMS, CALLS = 256, 1024
# Seconds after which a connection is closed if it is idle, and after which its client has to open a new one.
IDLE, AGE = 300.0, 1800.0
# Name of the health service's entry for liveness; readiness has the empty name, as in gRPC's specification.
LIVENESS = "liveness"
_OPEN = ("ServerLive", "ServerReady")
log = logging.getLogger(__name__)


@asynccontextmanager
async def serve(shared: Shared, address: str, grace: float) -> AsyncIterator[None]:
    """Serves gRPC until the block ends, and then answers what has arrived.

    Args:
        shared: what it shares with the HTTP server.
        address: HOST:PORT, free or reserved by `reserve`.
        grace: seconds for the calls in progress at the end.

    Raises:
        OSError: the address cannot be used.
    """
    server = grpc.aio.server(options=_options(shared.settings, grace), maximum_concurrent_rpcs=CALLS)
    services = {
        open_inference.SERVICE: open_inference.methods(shared),
        tf_serving.PREDICTION: tf_serving.prediction_methods(shared),
        tf_serving.MODELS: tf_serving.model_methods(shared),
    }
    for service, methods in services.items():
        handlers = {
            name: handler(f"/{service}/{name}", method, shared, is_open=name in _OPEN)
            for name, method in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    reported = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(reported, server)
    try:
        server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address} for gRPC") from error
    await server.start()
    watching = asyncio.create_task(_watch(reported, About(shared.catalog, shared.settings), [*services]))
    try:
        yield
    finally:
        watching.cancel()
        await reported.enter_graceful_shutdown()
        await server.stop(grace)


async def _watch(reported: health.aio.HealthServicer, about: About, services: list[str]) -> None:
    """Reports health: readiness for the server and its services, and liveness."""
    await reported.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
    while True:
        status = health_pb2.HealthCheckResponse.SERVING
        try:
            await about.check_ready()
        except ModelError:
            status = health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *services):
            await reported.set(name, status)
        await asyncio.sleep(about.settings.poll)


def _options(settings: Settings, grace: float) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.body),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", STREAMS),
        ("grpc.max_connection_idle_ms", round(1000 * IDLE)),
        ("grpc.max_connection_age_ms", round(1000 * AGE)),
        ("grpc.max_connection_age_grace_ms", round(1000 * grace)),
        # Each worker binds the port.
        ("grpc.so_reuseport", 1),
    ]

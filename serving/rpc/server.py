"""The gRPC server, in the event loop of the HTTP server and with the same models, limits and keys."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from serving.engine.about import About
from serving.engine.readiness import HEALTH_ONLY
from serving.engine.settings import Limits, Settings
from serving.requests.endpoint_parts import EndpointParts
from serving.rpc import open_inference, tf_serving
from serving.rpc.calls import CALLS, CallLimits, handler
from serving.rpc.connections import ConnectionLimits
from serving.rpc.health import TICK, Health

# Calls of one connection, and of all connections with health checks, that may be in progress.
STREAMS, MOST = 256, CALLS + HEALTH_ONLY
# Bytes of a message: gRPC copies it on the event loop, and blocks it meanwhile.
MESSAGE = 2**23
# Bytes of each call that gRPC takes in before the call is read, by its default.
WINDOW = 2**16
# Seconds after which a client has to open a new connection.
AGE = 1800.0
_OPEN = ("ServerLive", "ServerReady")
log = logging.getLogger(__name__)


@asynccontextmanager
async def serve(parts: EndpointParts, address: str, limits: Limits, grace: float) -> AsyncIterator[None]:
    """Serves gRPC until the port for HTTP closes, and then answers the calls that have arrived.

    Args:
        parts: parts of the endpoint, which it shares with the HTTP server.
        address: HOST:PORT, free or reserved by `reserve`.
        limits: limits on connections, which apply to those of HTTP and gRPC separately.
        grace: seconds for the calls in progress at the end.

    Raises:
        OSError: the address cannot be used.
    """
    server = grpc.aio.server(options=_options(parts.settings, limits, grace), maximum_concurrent_rpcs=MOST)
    call_limits = CallLimits(limits.body, limits.address)
    services = {
        open_inference.SERVICE: open_inference.methods(parts),
        tf_serving.PREDICTION: tf_serving.prediction_methods(parts),
        tf_serving.MODELS: tf_serving.model_methods(parts),
    }
    for service, methods in services.items():
        handlers = {
            name: handler(f"/{service}/{name}", method, parts, call_limits, is_open=name in _OPEN)
            for name, method in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    health = Health(About(parts.catalog, parts.settings), services, call_limits)
    server.add_generic_rpc_handlers((health.handlers(),))
    try:
        server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address} for gRPC") from error
    await server.start()
    connections = ConnectionLimits(int(address.rpartition(":")[2]), limits.address, call_limits)
    tasks = [asyncio.create_task(health.update()), asyncio.create_task(connections.enforce())]
    stopping = asyncio.create_task(_stop(server, parts.settings, grace))
    try:
        yield
    finally:
        parts.settings.closing.set()
        await stopping
        for task in tasks:
            task.cancel()


async def _stop(server: grpc.aio.Server, settings: Settings, grace: float) -> None:
    """Stops the server once the port for HTTP closes."""
    while not settings.closing.is_set():
        await asyncio.sleep(TICK)
    await server.stop(grace)


def _options(settings: Settings, limits: Limits, grace: float) -> list[tuple[str, int]]:
    return [
        ("grpc.max_allowed_incoming_connections", limits.connections),
        # Until a connection speaks HTTP/2.
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.header)),
        ("grpc.max_connection_idle_ms", round(1000 * limits.idle)),
        # Clients that have vanished silently do not answer a ping.
        ("grpc.keepalive_time_ms", round(1000 * limits.idle)),
        ("grpc.keepalive_timeout_ms", round(1000 * limits.header)),
        ("grpc.max_receive_message_length", min(settings.body, MESSAGE)),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", STREAMS),
        # Otherwise, this window grows with the speed of the network.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_connection_age_ms", round(1000 * AGE)),
        ("grpc.max_connection_age_grace_ms", round(1000 * grace)),
        # Each worker binds the port.
        ("grpc.so_reuseport", 1),
    ]

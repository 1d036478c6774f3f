"""One gRPC call: its key, limits and errors, and its place in metrics and log, as for a request over HTTP."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from serving.engine.backends import ServedVersion
from serving.engine.processes import SMALL
from serving.http.app import Shared, kind_of, refusal
from serving.messages.tables import bulk_bytes

# gRPC's status for the HTTP status of an error.
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
# Metadata with the milliseconds after which a client may try again (gRPC's proposal A6).
_RETRY = "grpc-retry-pushback-ms"


@dataclass
class GrpcCall:
    """Facts about a call, which its method adds to."""

    served: ServedVersion | None = None
    """The requested version, once it has been found."""

    def found(self, served: ServedVersion) -> ServedVersion:
        """Records the requested version, and returns it."""
        self.served = served
        return served


# Bytes of a message that may be copied on the event loop; copying 30 MB takes tens of milliseconds.
COPIED = 2**20
# Answers a message.
Method = Callable[[GrpcCall, bytes], Awaitable[bytes]]


def handler(path: str, method: Method, shared: Shared, *, is_open: bool) -> grpc.RpcMethodHandler:
    """Returns the handler of a method, for messages that it parses itself.

    Args:
        path: `/package.Service/Method`.
        method: the method.
        shared: what it shares with HTTP.
        is_open: whether it answers without a key.
    """

    async def answer(body: bytes, context: Any) -> bytes:
        call, status, access, headers = GrpcCall(), 499, shared.access, _headers(context)
        record = access.begin(headers)
        try:
            access.enter(len(body))
            if denial := access.deny(path, headers, record, is_open=is_open):
                status = denial.status
                record.refuse(denial.kind, denial.reason)
                await context.abort(CODES[status], denial.reason, _retry(denial.after or 0.0))
            with access.tracing.use(record.trace):
                response = await method(call, body)
            status = 200
            return response
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            status, message, after = refusal(error)
            record.refuse(kind_of(error), message)
            # This raises an error of its own.
            await context.abort(CODES[status], message, _retry(after))
            raise
        finally:
            record.served = call.served
            access.leave(path, len(body), status, record)

    return grpc.unary_unary_rpc_method_handler(answer)


def parsing_cost(body: bytes, bulk: tuple[tuple[int, ...], ...]) -> int:
    """Returns the size of a message for `Predictor.offload`: without the bytes that are merely copied, unless many.

    Args:
        body: the message.
        bulk: see `serving.messages.tables.bulk_bytes`.
    """
    return len(body) - bulk_bytes(body, bulk) if SMALL < len(body) <= COPIED else len(body)


def text(field: bytes) -> str:
    """Returns a string of a message; invalid ones are names that nothing has."""
    return field.decode(errors="replace")


def _retry(after: float) -> tuple[tuple[str, str], ...]:
    return ((_RETRY, str(round(1000 * after))),) if after else ()


def _headers(context: Any) -> dict[bytes, bytes]:
    return {
        name.encode(): value.encode() if isinstance(value, str) else value
        for name, value in context.invocation_metadata() or ()
    }

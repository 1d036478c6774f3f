"""One gRPC call: its key, limits and errors, and its place in metrics and log, as for a request over HTTP."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast
from urllib.parse import unquote

import grpc

from serving.engine.backends import ServedVersion
from serving.engine.processes import COPIED, SMALL
from serving.errors import BusyError, RequestError, SlowError
from serving.messages.protobuf import bulk_bytes
from serving.requests.access import Denial
from serving.requests.endpoint_parts import EndpointParts
from serving.requests.records import RequestRecord
from serving.requests.refusals import kind_of, refusal
from serving.tracing import REQUEST_ID, TRACEPARENT

# gRPC's status for the HTTP status of an answer.
CODES = {
    200: grpc.StatusCode.OK,
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
# Calls that may be in progress, without health checks: gRPC accepts some more, so that these are answered whatever
# else is in progress. A watch of health, which may never end, does not count as a check.
CALLS = 1024
# One of this many calls from an address may be a watch of health.
WATCHES = 16
# Metadata with the milliseconds after which a client may try again (gRPC's proposal A6).
_RETRY = "grpc-retry-pushback-ms"
# Messages of more than a few bytes that may arrive at the same time, and seconds that each may take while others wait:
# gRPC hands a message over once it is complete, so its bytes cannot be counted before that. Health checks need no key,
# so they have places of their own: neither kind of call can take up those of the other. The few bytes of a check come
# together with its call, so that unfinished ones soon make room.
ARRIVING, HURRY = 14, 1.0
CHECKS, CHECK_HURRY = 2, 0.02
# Bytes of answers that their clients have not read.
UNREAD = 2**26


@dataclass
class GrpcCall:
    """Facts about a call, which its method adds to."""

    served: ServedVersion | None = None
    """The requested version, once it has been found."""
    model: str = ""
    """Name of the requested model, once its message has been read."""
    size: int = 0
    """Bytes of its message, once it has arrived."""

    def found(self, served: ServedVersion) -> ServedVersion:
        """Records the requested version, and returns it."""
        self.served = served
        return served


# Answers a message.
Method = Callable[[GrpcCall, bytes], Awaitable[bytes]]
# Address and port of a client.
Client = tuple[str, int]
# What limits on calls distinguish.
Kind = Literal["call", "check", "watch"]


class NewestFirst:
    """A semaphore whose places go to the one that came last.

    Args:
        places: how many there are.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[asyncio.Future[None]] = []

    def locked(self) -> bool:
        """Returns whether no place is free."""
        return not self._free

    async def acquire(self) -> None:
        """Takes a place, once there is one."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif not turn.cancelled():
                # It had its turn at the same moment.
                self.release()
            raise

    def release(self) -> None:
        """Passes a place on."""
        while self._waiting:
            if not (turn := self._waiting.pop()).done():
                turn.set_result(None)
                return
        self._free += 1


class Arrivals:
    """Messages that arrive, a number of them at a time.

    Args:
        body: seconds for a message to arrive.
        places: a semaphore with a place for each that may arrive at the same time.
        hurry: seconds for a message to arrive while others wait.
    """

    def __init__(self, body: float, places: "asyncio.Semaphore | NewestFirst", hurry: float) -> None:
        self._body, self._places, self._hurry = body, places, hurry
        # Calls that wait for their turn to be read.
        self._waiting = 0
        # Time limits of the messages that are arriving, with the time at which each began; without those that were set.
        self._unhurried: dict[asyncio.Timeout, float] = {}

    async def read(self, context: Any) -> bytes:
        """Returns the message of a call.

        From its context: the iterator that gRPC passes to a method, once used, refers to itself and to the message
        until garbage is collected.

        Each call that has to wait gives one of those that arrive, the oldest without it, a limit of `hurry` seconds;
        those that begin while others wait have it from the start. Slow clients thus cannot keep others from being read.

        Raises:
            SlowError: it does not arrive in time.
            RequestError: there is none.
        """
        try:
            async with asyncio.timeout(self._body):
                if self._places.locked() and self._unhurried:
                    oldest = next(iter(self._unhurried))
                    start = self._unhurried.pop(oldest)
                    oldest.reschedule(max(start + self._hurry, asyncio.get_running_loop().time()))
                self._waiting += 1
                try:
                    await self._places.acquire()
                finally:
                    self._waiting -= 1
                try:
                    return await self._read_in_turn(context)
                finally:
                    self._places.release()
        except TimeoutError:
            raise SlowError(f"the message did not come within {self._body:g} s.") from None

    async def _read_in_turn(self, context: Any) -> bytes:
        turn = asyncio.timeout(self._hurry if self._waiting else None)
        if not self._waiting:
            self._unhurried[turn] = asyncio.get_running_loop().time()
        try:
            async with turn:
                message = await context.read()
        except TimeoutError:
            raise SlowError(f"the message took longer than {self._hurry:g} s while others were waiting.") from None
        finally:
            self._unhurried.pop(turn, None)
        if message is grpc.aio.EOF:
            raise RequestError("the call has no message.")
        return cast(bytes, message)


@dataclass
class CallLimits:
    """Limits on calls, which all methods of a server share."""

    body: float
    """Seconds for the message of a call to arrive, and for its answer to be read."""
    address: int
    """Calls from one address that may be open."""
    by_address: Counter[str] = field(default_factory=Counter)
    watches: Counter[str] = field(default_factory=Counter)
    """Watches of health, by address."""
    others: int = 0
    """Calls that are no checks of health."""
    # Of each answered call that is still open, because its client grants no room for the answer: the client, the time
    # limit, and the bytes of the answer; the oldest first.
    _unread: dict[Any, tuple[Client, float, int]] = field(default_factory=dict)
    messages: Arrivals = field(init=False)
    """Messages that arrive, but for those of health checks."""
    checks: Arrivals = field(init=False)
    """Messages of health checks that arrive."""

    def __post_init__(self) -> None:
        # Among honest clients, it is fair that the first comes first. Checks arrive at once, so that only unfinished
        # ones have to wait for long.
        self.messages = Arrivals(self.body, asyncio.Semaphore(ARRIVING), HURRY)
        self.checks = Arrivals(self.body, NewestFirst(CHECKS), CHECK_HURRY)

    def begin(self, context: Any, kind: Kind) -> None:
        """Counts a call until it is closed, which is after its answer has been read.

        Raises:
            BusyError: too many calls from its address are open, or too many of all.
        """
        address, _ = client_of(context.peer())
        if self.by_address[address] >= self.address:
            raise BusyError(f"{self.address} calls from this address are in progress, the limit.", after=1.0)
        if kind != "check" and self.others >= CALLS:
            raise BusyError(f"{CALLS:,} calls are in progress, the limit.", after=1.0)
        if kind == "watch" and self.watches[address] >= (most := max(self.address // WATCHES, 1)):
            raise BusyError(f"health is watched {most} times from this address, the limit.", after=1.0)
        self.by_address[address] += 1
        self.watches[address] += kind == "watch"
        self.others += kind != "check"
        context.add_done_callback(partial(self._end, address, kind))

    def answered(self, context: Any, size: int) -> None:
        """Starts the time limit for reading the answer of a call that `begin` has counted, unless it has ended."""
        if not context.done():
            self._unread[context] = client_of(context.peer()), time.monotonic() + self.body, size

    def late(self) -> set[Client]:
        """Returns the clients that have not read an answer in time, and those of the oldest beyond `UNREAD` bytes."""
        now, unread = time.monotonic(), list(self._unread.values())
        total, found = sum(size for *_, size in unread), set()
        for client, end, size in unread:
            if end < now or total > UNREAD:
                found.add(client)
                total -= size
        return found

    def _end(self, address: str, kind: Kind, context: Any) -> None:
        self._unread.pop(context, None)
        self.by_address[address] -= 1
        self.watches[address] -= kind == "watch"
        self.others -= kind != "check"
        if not self.by_address[address]:
            del self.by_address[address], self.watches[address]


def handler(
    path: str, method: Method, parts: EndpointParts, limits: CallLimits, *, is_open: bool
) -> grpc.RpcMethodHandler:
    """Returns the handler of a method, for messages that it parses itself.

    Args:
        path: `/package.Service/Method`.
        method: the method.
        parts: parts of the endpoint, which it shares with HTTP.
        limits: limits on the calls of all methods.
        is_open: whether it answers without a key, as a health check.
    """
    arrivals = limits.checks if is_open else limits.messages

    async def answer(_: object, context: Any) -> bytes:
        call, status, access, headers = GrpcCall(), 499, parts.access, _headers(context)
        # Later, the connection may be gone.
        client, _ = client_of(context.peer())
        record = access.begin(headers)
        access.enter()
        try:
            denial = access.deny(headers, record, is_open=is_open)
            response = denial or await respond(call, record, context)
            if isinstance(response, Denial):
                status = response.status
                record.refuse(response.kind, response.reason)
                # An aborted call keeps this frame, and so no message may be in it, until garbage is collected.
                await context.abort(CODES[status], response.reason, _trailers(record, response.after or 0.0))
                raise AssertionError
            status = 200
            context.set_trailing_metadata(_trailers(record, 0.0))
            limits.answered(context, len(response))
            return response
        except asyncio.CancelledError:
            record.refuse("disconnected", "the call was cancelled.")
            raise
        finally:
            record.served = call.served
            access.leave(
                record,
                call.size,
                method="POST",
                path=path,
                route=path,
                model=call.model,
                status=status,
                client=client,
                grpc_status=CODES[status].name,
            )

    async def respond(call: GrpcCall, record: RequestRecord, context: Any) -> bytes | Denial:
        try:
            limits.begin(context, "check" if is_open else "call")
            with parts.access.tracing.use(record.trace):
                body = await arrivals.read(context)
                call.size = len(body)
                parts.access.count(call.size, call.size)
                return await method(call, body)
        except Exception as error:
            status, message, after = refusal(error)
            return Denial(status, kind_of(error), message, after)

    # The client sends one message, and gRPC would wait for it without a limit.
    return grpc.stream_unary_rpc_method_handler(answer)


def client_of(peer: str) -> Client:
    """Returns the client in gRPC's name of a peer: `ipv4:127.0.0.1:1024`, `ipv6:%5B::1%5D:1024`.

    The name is empty once the connection is gone: no address, and port 0.
    """
    address, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return address.strip("[]"), int(port or 0)


def parsing_cost(body: bytes, bulk: tuple[tuple[int, ...], ...]) -> int:
    """Returns the size of a message for `Predictor.offload`: without the bytes that are merely copied, unless many.

    Args:
        body: the message.
        bulk: see `serving.messages.protobuf.bulk_bytes`.
    """
    return len(body) - bulk_bytes(body, bulk) if SMALL < len(body) <= COPIED else len(body)


def text(field: bytes) -> str:
    """Decodes a string of a message; invalid text becomes a name that nothing has."""
    return field.decode(errors="replace")


def _trailers(record: RequestRecord, after: float) -> tuple[tuple[str, str], ...]:
    """Returns the metadata at the end of every call."""
    trace = record.trace
    found = ((REQUEST_ID.decode(), trace.request_id), (TRACEPARENT.decode(), trace.traceparent))
    return (*found, (_RETRY, str(round(1000 * after)))) if after else found


def _headers(context: Any) -> dict[bytes, bytes]:
    return {
        name.encode(): value.encode() if isinstance(value, str) else value
        for name, value in context.invocation_metadata() or ()
    }

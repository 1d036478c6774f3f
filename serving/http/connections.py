"""Limits on connections: a protocol for uvicorn, which itself limits only their idle time."""

import asyncio
import re
import socket
from typing import Literal, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.engine.settings import Limits
from serving.http import places
from serving.http.transport import DISCARDED, AnswerTransport, refusal
from serving.requests.metrics import cut

# Bytes per second at which a body does not count as slow, however long it takes: 0.5 Mbit/s.
RATE = 2**16
# Seconds left for incomplete requests and unread answers once the endpoint stops.
LAST = 5.0
# Maximum bytes of the head of a request, and of anything else outside the body: trailers, chunk sizes.
HEAD = 2**16
# Pipelined requests that may wait on one connection for the answers before theirs.
PIPELINED = 32
# Bodies of more chunks than this must average `CHUNK` bytes per chunk: each costs some microseconds of the event loop.
CHUNKS, CHUNK = 1024, 64
# The paths of all protocols that answer whether the server, a model or a version is alive or ready.
_HEALTH = re.compile(
    rb"(GET|HEAD) /(v2/health/(live|ready)|v2/models/[^/?]+(/versions/[^/?]+)?/ready"
    rb"|v1/models/[^/?:]+(/(versions|labels)/[^/?:]+)?)?(\?.*)?"
)
# A URL with a host and without a path, up to where the path would be.
_HOST = re.compile(rb"https?://[^/?#]+(?=[?#]|$)", re.IGNORECASE)
_SLOW = refusal(b"408 Request Timeout", b"the request did not come in time.")
_FULL = refusal(b"503 Service Unavailable", b"too many connections are open.", b"retry-after: 1\r\n")
_SMALL = refusal(b"400 Bad Request", b"the chunks of the body have less than %d bytes on average." % CHUNK)
_MANY = refusal(b"400 Bad Request", b"more than %d requests wait for their answers." % PIPELINED)
_MALFORMED = refusal(b"400 Bad Request", b"the request is not valid HTTP.")
_LONG = refusal(b"431 Request Header Fields Too Large", b"the head of the request exceeds %d bytes." % HEAD)


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol for one connection, with limits; see `protocol`."""

    opened: places.Places
    # The part of a request that the client is sending; None after the end of a request.
    sending: Literal["header", "body"] | None
    # Start of that part, or end of the last answer.
    since: float
    # Start of the client's silence: its last byte, the last answer, or the start or end of a wait for it to read.
    heard: float
    address: str

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accepts or refuses the connection."""
        self._answers = AnswerTransport(transport, self._linger)
        super().connection_made(cast(asyncio.Transport, self._answers))
        self.sending, self.since, self._received = "header", self.loop.time(), 0
        self.heard = self.since
        self._unparsed = 0
        # Chunks of the body that have been parsed but not passed on.
        self._parts: list[bytes] = []
        # Why the parser would stop, and whether nothing more is parsed: the refusal follows the answers to the requests
        # before.
        self._fault = _MALFORMED, "malformed"
        self._stopped = False
        self._unread_since: float | None = None
        self._ends = float("inf")
        # Whether the client sends nothing more; it may still read.
        self._ended = False
        # Whether a request that the client may still be sending has been refused.
        self._refused = False
        # Unix sockets have no address.
        self.address = self.client[0] if self.client else ""
        self._health_only = not self.opened.add(self)

    def another(self) -> "LimitedProtocol":
        """Returns a protocol for another connection of the same server."""
        return type(self)(self.config, self.server_state, self.app_state)

    def connection_lost(self, exc: Exception | None) -> None:
        """Removes the connection."""
        self.opened.remove(self)
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answers the requests that have arrived completely: `shutdown(SHUT_WR)` only ends what the client sends."""
        self._ended = True
        if self.sending == "body" and self.pipeline:
            self._stop()
        return self.sending != "body" and not self._is_free() and not self._answers.lingers

    def data_received(self, data: bytes) -> None:
        """Receives part of a request."""
        self.heard = self.loop.time()
        if self._answers.lingers:
            self._answers.discard(data)
            self.check(self.heard)
        elif len(data) <= HEAD:
            self._receive(data)
        else:
            # In parts, so that the parser keeps no more than the limit.
            for start in range(0, len(data), HEAD):
                if self.transport.is_closing():
                    return
                self._receive(data[start : start + HEAD])
        if self._parts and not self.transport.is_closing():
            self._pass_on()

    def _receive(self, data: bytes) -> None:
        if self._stopped:
            # Nothing that follows can be parsed.
            return
        if self.sending is None:
            self.sending, self.since, self._received = "header", self.loop.time(), 0
        self._received += len(data)
        self._unparsed += len(data)
        self._parse(data)
        if self._unparsed > HEAD and self.sending is not None and not self.transport.is_closing():
            self._refuse(_LONG, "head")
        elif self._received > DISCARDED and self.sending == "body" and self._is_free():
            self.cut("discarded")

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._stop()
        except httptools.HttpParserUpgrade as offered:
            (end,) = offered.args
            self._decline_upgrade(data[end:])

    def _decline_upgrade(self, rest: bytes) -> None:
        """Parses a request anew, without its offer of another protocol, which a server may ignore.

        Java's clients offer HTTP/2 in this way. The parser ends such a request at its head: its body would be lost, or
        taken for the next request.

        Args:
            rest: the bytes after its head.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._stop()
            return
        version = self.parser.get_http_version().encode()
        lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._parse(b"%s %s HTTP/%s\r\n%s\r\n%s" % (method, self.url, version, b"".join(lines), rest))

    def on_message_begin(self) -> None:
        """Begins a request, unless too many are waiting."""
        if len(self.pipeline) >= PIPELINED:
            self._fault = _MANY, "pipeline"
            # The parser stops.
            raise ValueError("too many requests are waiting for their answers")
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Starts the time limit of the body, unless the connection is for health only, and the request for another."""
        if self.parser.should_upgrade():
            return
        if (host := _HOST.match(self.url)) is not None:
            # As clients of a proxy may send it; uvicorn does without the path that it stands for.
            self.url = host[0] + b"/" + self.url[host.end() :]
        asked = self.parser.get_method() + b" " + self.url
        if self._health_only and not self.has_asked() and not _HEALTH.fullmatch(asked):
            self.refuse_as_full()
            # The parser stops.
            raise ValueError("the connection is for health only")
        # The parser stops if uvicorn cannot split the URL: the request has no body then.
        super().on_headers_complete()
        self.sending, self.since, self._received, self._unparsed = "body", self.loop.time(), 0, 0
        self._chunks = self._chunked = 0
        if self._health_only:
            # Nothing that follows is read.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Receives part of the body, unless its parts are too small."""
        self._unparsed = 0
        self._chunks += 1
        self._chunked += len(body)
        if self._chunks > CHUNKS and self._chunked < CHUNK * self._chunks:
            self._refuse(_SMALL, "chunks")
            # The parser stops.
            raise ValueError("the chunks of the body are too small")
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Ends the time limit of the body."""
        if self.parser.should_upgrade():
            return
        self.sending, self._unparsed = None, 0
        if self._parts:
            self._pass_on()
        super().on_message_complete()

    def _pass_on(self) -> None:
        """Passes parsed chunks on together: uvicorn spends more time on each part of a body than parsing takes."""
        parts, self._parts = self._parts, []
        super().on_body(parts[0] if len(parts) == 1 else b"".join(parts))

    def _stop(self) -> None:
        """Refuses a request that cannot be parsed, unless it has been refused for a better reason."""
        if not (self._stopped or self.transport.is_closing()):
            self._refuse(*self._fault, begun=True)

    def _put_off(self, answer: bytes, reason: str) -> bool:
        """Puts a refusal off if requests before have no answer yet: it would be taken for that of one of them."""
        # The request whose body is coming waits for its turn, if it is not the only one.
        if self._stopped or not (self.pipeline if self.sending == "body" else not self._is_free()):
            return False
        if self.sending == "body":
            self.pipeline.popleft()
            self._parts.clear()
        self._fault, self._stopped, self.sending = (answer, reason), True, None
        return True

    def on_response_complete(self) -> None:
        """Starts the idle time, unless the client is already sending its next request."""
        self._answers.flush()
        self.heard = self.loop.time()
        if self._stopped and not (self.pipeline or self.transport.is_closing()):
            self._refuse(*self._fault, begun=True)
        if self.sending is None:
            self.since = self.heard
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        # Like uvicorn's method, but without a keep-alive timer per request: `check` closes idle connections.
        self.server_state.total_requests += 1
        if self._ended:
            self.transport.close()
            return
        self.flow.resume_reading()

    def pause_writing(self) -> None:
        """Starts the time limit for reading the answer."""
        self._unread_since = self.heard = self.loop.time()
        super().pause_writing()
        self.opened.add_unread(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Ends the time limit for reading the answer."""
        self._unread_since, self.heard = None, self.loop.time()
        self.opened.unread.pop(self, None)
        super().resume_writing()

    def shutdown(self) -> None:
        """Stops the connection: complete requests are answered, incomplete ones have `LAST` seconds left."""
        self._ends = self.loop.time() + LAST
        super().shutdown()

    def is_silent(self) -> bool:
        """Returns whether it is waiting for its client."""
        return self.sending is not None or self._unread_since is not None or self._is_free()

    def has_asked(self) -> bool:
        """Returns whether the head of a request has arrived."""
        return self.cycle is not None

    def _is_free(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def check(self, now: float) -> None:
        """Closes the connection if its client is too slow."""
        limits = self.opened.limits
        if self._answers.lingers:
            if self._answers.has_lingered(now) or now > self._ends:
                self.cut("discarded")
        elif self._unread_since is not None:
            if now > min(self._unread_since + limits.body, self._ends):
                self.cut("answer")
        elif self.transport.is_closing():
            # From now on, unread data gets as much time as any answer.
            self._unread_since = now
        elif self.sending is None:
            if self._is_free() and now > self.since + limits.idle:
                self.transport.close()
        elif self._health_only and not self.has_asked():
            if now > self.since + places.SILENT:
                self.refuse_as_full()
        elif self.sending == "header" and self._is_free() and now > self.since + limits.header:
            self._refuse(_SLOW, "header")
        elif self.sending == "body" and now > min(self.since + limits.body + self._received / RATE, self._ends):
            self._refuse(_SLOW, "body")

    def cut(self, reason: str) -> None:
        """Closes the connection without an answer."""
        cut(reason).inc()
        self.opened.remove(self)
        self.transport.abort()

    def refuse_as_full(self) -> None:
        """Closes the connection with the answer that too many are open."""
        self._refuse(_FULL, "refused")

    def make_way(self) -> None:
        """Closes the connection at once, with that answer unless it has one."""
        # Does not linger: it is no longer counted.
        self._ended = True
        if self._answers.lingers:
            self.cut("room")
        else:
            self.refuse_as_full()

    def _linger(self) -> bool:
        """Returns whether the client may still be sending; what it sends is then discarded for a while."""
        if self._ended or not (self.sending == "body" or self._refused) or (self._health_only and self.has_asked()):
            return False
        self._parts.clear()
        if not self._is_free():
            # The rest of its body does not reach the app, which must not wait for it.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        return True

    def _refuse(self, answer: bytes, reason: str, *, begun: bool = False) -> None:
        if self._put_off(answer, reason):
            return
        cut(reason).inc()
        # Browsers open connections in advance, and a request that has been answered needs no second answer.
        answers = self.cycle and not self.cycle.response_started if self.sending == "body" else begun or self._received
        if answers or answer is _FULL:
            self.transport.write(answer)
            self._refused = begun or self._received > 0
        self.transport.close()


def protocol(limits: Limits, listening: socket.socket | None = None) -> type[asyncio.Protocol]:
    """Returns a protocol class with limits.

    Args:
        limits: shared by all connections.
        listening: the socket that they come from, which does not block, if this process alone accepts them.

    Returns:
        A class for `uvicorn.Config(http=...)`.

    Example:
        uvicorn.run(app, http=protocol(Limits(header=5)))
    """
    return type("Protocol", (LimitedProtocol,), {"opened": places.Places(limits, listening)})

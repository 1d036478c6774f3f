"""Answers in as few parts as possible, and for clients that read them only after their whole request."""

import asyncio

import pytest
import uvicorn
from uvicorn.server import ServerState

from serving.engine.settings import Limits
from serving.http import connections, transport
from serving.http.connections import protocol
from tests.endpoint import eventually

from .limited import GET, HEAD, LARGE, REFUSED, Server, said, status


class Recorded(asyncio.Transport):
    """A transport that records what is written, and how."""

    def __init__(self):
        self.calls, self.closed = [], False

    def get_extra_info(self, name, default=None):
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def write(self, data):
        self.calls.append(data)

    def writelines(self, parts):
        self.calls.append(b"|".join(parts))

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def resume_reading(self):
        pass


def written(app, request):
    """Returns what is written for a request, in as many parts as system calls."""

    async def run():
        transport = Recorded()
        config = uvicorn.Config(app, http=protocol(Limits()), lifespan="off", log_config=None)
        config.load()
        one = config.http_protocol_class(config, ServerState(), {})
        one.connection_made(transport)
        one.data_received(request)
        await asyncio.gather(*one.tasks, return_exceptions=True)
        one.connection_lost(None)
        return transport.calls

    return asyncio.run(run())


def answering(*bodies, size):
    async def app(scope, receive, send):
        await receive()
        headers = [(b"content-length", b"%d" % size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, body in enumerate(bodies):
            await send({"type": "http.response.body", "body": body, "more_body": number + 1 < len(bodies)})

    return app


def test_a_head_is_sent_together_with_the_start_of_its_body():
    (whole,) = written(answering(b"seven", size=5), GET)
    head, body = whole.split(b"\r\n\r\n|")
    assert (head[:15], body) == (b"HTTP/1.1 200 OK", b"seven")
    first, second = written(answering(b"HTTP/1.1 sev", b"en", size=14), GET)
    assert first.endswith(b"\r\n\r\n|HTTP/1.1 sev")
    assert second == b"en"


def test_a_head_without_a_body_is_sent_too():
    (head,) = written(answering(b"", size=5), GET.replace(b"GET", b"HEAD"))
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert head.endswith(b"content-length: 5\r\n\r\n")
    # An app that fails after the head: uvicorn closes the connection.
    (head,) = written(answering(size=5), GET)
    assert head.startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_asks_to_continue_is_answered_at_once():
    go_on, answer = written(answering(b"seven", size=5), HEAD[:-2] + b"Expect: 100-continue\r\n\r\n0123456789")
    assert go_on == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.endswith(b"seven")


CHUNKED = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (REFUSED, b"200"),
        (CHUNKED.replace(b"/", b"/refused", 1)[:-2] + b"Connection: close\r\n\r\n%x\r\n" % (2 * LARGE), b"200"),
        (b"nonsense\r\n\r\n", b"400"),
        (CHUNKED + b"1\r\nx\r\n" * (2 * connections.CHUNKS), b"400"),
        (b"GET / HTTP/1.1\r\nA: ", b"431"),
    ],
    ids=["length", "chunked", "malformed", "small chunks", "head"],
)
def test_a_client_that_reads_only_after_its_whole_request_gets_the_answer(start, expected):
    with Server() as server:
        assert status(said(server.connect(start, b"x" * LARGE))) == expected


def test_a_large_request_beyond_the_limit_of_connections_gets_its_answer():
    with Server(connections=1) as server, server.connect(GET.replace(b"/", b"/slow", 1)):
        eventually(server.opened)
        assert status(said(server.connect(HEAD.replace(b"10", b"%d" % LARGE), bytes(LARGE)))) == b"503"


@pytest.mark.parametrize("request_", [REFUSED, REFUSED.replace(b"Connection: close\r\n", b"")])
def test_a_refused_body_has_a_largest_size(request_, monkeypatch):
    for module in (connections, transport):
        monkeypatch.setattr(module, "DISCARDED", LARGE)
    with Server() as server:
        with server.connect(request_) as connection, pytest.raises(ConnectionError):
            connection.sendall(bytes(5 * LARGE))
        eventually(lambda: not server.opened())


def test_a_client_that_goes_on_sending_slowly_is_cut_off(monkeypatch):
    monkeypatch.setattr(transport, "LINGER", 0.2)
    with Server(idle=60, header=0.3) as server, server.connect(REFUSED) as connection:
        assert status(connection.recv(2**16)) == b"200"

        def gone():
            try:
                connection.sendall(b"x")
            except ConnectionError:
                return True
            return False

        eventually(gone)
        assert not server.opened()


def test_a_request_that_is_refused_while_its_body_comes_ends_at_once(monkeypatch):
    monkeypatch.setattr(transport, "LINGER", 60.0)
    with Server(header=0.3, body=0.4) as server:
        with server.connect(HEAD, b"half") as connection:
            assert status(connection.recv(2**16)) == b"408"
            eventually(lambda: server.ended == ["disconnect"])
            assert len(server.opened()) == 1
        eventually(lambda: not server.opened())


def test_a_client_that_goes_on_sending_does_not_delay_shutdown(monkeypatch):
    monkeypatch.setattr(transport, "LINGER", 60.0)
    monkeypatch.setattr(connections, "LAST", 0.2)
    with Server(header=0.3) as server, server.connect(REFUSED) as connection:
        assert status(connection.recv(2**16)) == b"200"
        server.server.should_exit = True
        # Far below the limit of `timeout_graceful_shutdown`.
        server.thread.join(10)
        assert not server.thread.is_alive()

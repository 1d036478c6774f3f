"""Slow clients over real sockets, with limits of some tenths of a second."""

import asyncio
import contextlib
import socket
import threading
import time
from unittest import mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from serving.engine.settings import Limits
from serving.http import connections
from serving.http.connections import protocol
from tests.endpoint import eventually

HEAD = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
LARGE = 2**25


class Server:
    """Runs an app in a thread that answers with the length of the body, or with a long answer at `/large`."""

    def __init__(self, **limits):
        self.ended, self.gone = [], threading.Event()
        config = uvicorn.Config(
            self.app, http=protocol(Limits(**{"idle": 0.3, **limits})), timeout_graceful_shutdown=20,
            lifespan="off", ws="none", interface="asgi3", log_config=None,
        )  # fmt: skip
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = self.listening.getsockname()
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.listening],))

    async def app(self, scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.ended.append("disconnect")
                return
            body, more = body + message["body"], message["more_body"]
        if scope["path"] == "/slow":
            await asyncio.sleep(1.0)
        answer = bytes(LARGE) if scope["path"] == "/large" else b"%d" % len(body)
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})
        self.ended.append("answer")

    def connect(self, *parts):
        made = socket.create_connection(self.address, timeout=20)
        for part in parts:
            made.sendall(part)
        return made

    def __enter__(self):
        self.thread.start()
        eventually(lambda: self.server.started)
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join()


def said(connection):
    """Returns all data received until the other side closes the connection."""
    # Bytes would be copied for each part, so that reading `LARGE` bytes takes seconds and may exceed the time limit.
    found = bytearray()
    with connection, contextlib.suppress(ConnectionResetError):
        while part := connection.recv(2**16):
            found += part
    return bytes(found)


@pytest.fixture
def server():
    with Server(header=0.3, body=0.4) as made:
        yield made


def status(answer):
    return answer[9:12]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # A browser may open a connection before it needs it, so no error is sent.
        ([], b""),
        ([GET[:12]], b"408"),
        ([HEAD, b"half"], b"408"),
        ([GET], b"200"),
        ([GET, GET[:12]], b"200"),
    ],
)
def test_a_client_that_stops_sending_is_cut_off(server, parts, expected):
    assert status(said(server.connect(*parts))) == expected


SLOW = b"GET /slow HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "answers", "ended"),
    [
        ([SLOW], 1, ["answer"]),
        # The second begins after the client has stopped sending.
        ([SLOW + SLOW], 2, ["answer", "answer"]),
        ([SLOW, GET[:12]], 1, ["answer"]),
        ([HEAD, b"half"], 0, ["disconnect"]),
        ([GET[:12]], 0, []),
        ([], 0, []),
    ],
)
def test_a_client_that_has_stopped_sending_gets_its_answers(server, parts, answers, ended):
    connection = server.connect(*parts)
    connection.shutdown(socket.SHUT_WR)
    assert said(connection).count(b"200 OK") == answers
    eventually(lambda: server.ended == ended)


def test_a_second_request_that_stops_is_cut_off_after_the_first_answer(server):
    connection = server.connect(GET)
    first = connection.recv(2**16)
    connection.sendall(GET[:12])
    assert (status(first), status(said(connection))) == (b"200", b"408")


def test_a_byte_now_and_then_does_not_extend_the_limit(server):
    connection = server.connect(b"G")
    for byte in GET[1:16]:
        time.sleep(0.05)
        # It may be closed already.
        with contextlib.suppress(OSError):
            connection.sendall(bytes([byte]))
    assert status(said(connection)) in (b"408", b"")


def test_a_body_that_stops_ends_the_request(server):
    assert b"did not come in time" in said(server.connect(HEAD, b"half"))
    eventually(lambda: server.ended == ["disconnect"])


def test_a_body_that_comes_fast_enough_may_take_longer(server, monkeypatch):
    monkeypatch.setattr(connections, "RATE", 4)
    connection = server.connect(HEAD)
    for _ in range(10):
        time.sleep(0.08)
        connection.sendall(b"x")
    assert status(said(connection)) == b"200"


def test_a_client_that_does_not_read_its_answer_is_cut_off(server):
    connection = server.connect(b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n")
    eventually(lambda: server.ended == ["answer"])
    eventually(lambda: not server.server.server_state.connections)
    assert len(said(connection)) < LARGE


@pytest.mark.parametrize(
    "start",
    [b"GET / HTTP/1.1\r\nA: ", b"GET /", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: "],
    ids=["header", "path", "trailer"],
)
def test_an_endless_head_is_refused(start):
    with Server() as server:
        connection = server.connect(start)
        # In parts that are read separately: unread data at the end would reset the connection.
        for part in (b"x" * (connections.HEAD - len(start)), b"x" * 100):
            time.sleep(0.05)
            connection.sendall(part)
        assert status(said(connection)) == b"431"
        length = 4 * connections.HEAD
        whole = b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % length + bytes(length)
        assert said(server.connect(whole)).endswith(b"\r\n\r\n%d" % length)


@pytest.mark.parametrize(("count", "answered"), [(connections.PIPELINED, True), (2000, False)])
def test_some_requests_may_be_sent_ahead_of_their_answers(count, answered):
    with Server() as server:
        answer = said(server.connect(GET * count))
    assert (answer.count(b" 200 ") == count, b" 400 " in answer) == (answered, not answered)


def test_a_malformed_request_is_answered_after_those_before_it():
    slow = GET.replace(b"/", b"/slow", 1)
    with Server() as server:
        answer = said(server.connect(slow + b"nonsense\r\n\r\n", bytes(2 * connections.HEAD)))
    first, _, second = answer.partition(b"HTTP/1.1 400")
    assert first.startswith(b"HTTP/1.1 200")
    assert second.endswith(b'\r\n\r\n{"error":"the request is not valid HTTP."}')
    assert b"HTTP/1.1" not in second


def test_what_is_not_http_is_refused_and_counted(server, monkeypatch):
    refused = []
    monkeypatch.setattr(connections, "cut", lambda reason: refused.append(reason) or mock.Mock())
    answer = said(server.connect(b"\x16\x03\x01\x02\x00\x01\x00\x01"))
    assert status(answer) == b"400"
    assert b"content-type: application/json\r\n" in answer
    assert refused == ["malformed"]


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"


# They look like second requests.
WITH_LENGTH = b"Content-Length: %d\r\n\r\n%s" % (len(GET), GET)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(GET), GET)


@pytest.mark.parametrize("body", [WITH_LENGTH, CHUNKED])
@pytest.mark.parametrize("at", [1, 60, 150, 200, -1])
def test_an_offer_of_another_protocol_is_declined_and_the_body_kept(server, body, at):
    # As Java's clients send it.
    request = b"POST / HTTP/1.1\r\nHost: here\r\n" + OFFER + body
    connection = server.connect(request[:at])
    time.sleep(0.02)
    connection.sendall(request[at:] + b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    answers = said(connection).split(b"HTTP/1.1 200")[1:]
    assert [answer.partition(b"\r\n\r\n")[2] for answer in answers] == [b"%d" % len(GET), b"0"]


def test_a_tunnel_is_refused(server):
    answer = said(server.connect(b"CONNECT here:80 HTTP/1.1\r\nHost: here\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(("size", "answered"), [(2 * connections.CHUNK, True), (1, False)])
def test_chunks_of_a_body_have_a_smallest_size(server, size, answered):
    chunk = b"%x\r\n%s\r\n" % (size, b"x" * size)
    head = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    sent = head + chunk * (2 * connections.CHUNKS) + b"0\r\n\r\n"
    assert status(said(server.connect(sent))) == (b"200" if answered else b"400")


def test_unread_answers_have_a_common_limit(monkeypatch):
    monkeypatch.setattr(connections, "UNREAD", LARGE * 3 // 2)
    with Server() as server:
        unread = []
        for number in range(2):
            unread.append(server.connect(b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n"))
            eventually(lambda number=number: len(server.ended) == number + 1)
        # The older one makes room.
        assert [len(said(one)) > LARGE for one in unread] == [False, True]


def test_an_answer_may_take_its_time(server):
    assert status(said(server.connect(b"GET /slow HTTP/1.1\r\nHost: here\r\n\r\n"))) == b"200"


@pytest.mark.parametrize("limit", ["connections", "address"])
def test_the_longest_silent_connection_makes_room(limit, monkeypatch):
    monkeypatch.setattr(connections, "SILENT", 0.0)
    with Server(**{limit: 3}) as server:
        silent = []
        for part in (b"", GET[:12], HEAD):
            silent.append(server.connect(part))
            # The clock of the loop has whole milliseconds.
            time.sleep(0.01)
        with server.connect(GET) as new:
            assert status(new.recv(2**16)) == b"200"
            assert said(silent[0]) == b""
            for one in silent[1:]:
                one.setblocking(False)
                with one, pytest.raises(BlockingIOError):
                    one.recv(1)


def test_a_client_that_is_sending_a_body_is_not_silent(monkeypatch):
    monkeypatch.setattr(connections, "SILENT", 0.0)
    with Server(connections=2) as server:
        sending = server.connect(HEAD)
        time.sleep(0.01)
        silent = server.connect(GET[:12])
        time.sleep(0.01)
        sending.sendall(b"half")
        eventually(lambda: any(one._received == 4 for one in server.server.server_state.connections))
        with server.connect(GET) as new:
            assert status(new.recv(2**16)) == b"200"
            assert said(silent) == b""
            sending.sendall(b"other.")
            assert status(said(sending)) == b"200"


def test_connections_beyond_the_limit_are_refused():
    with Server(connections=2) as server:
        first = [server.connect(b"GET /slow HTTP/1.1\r\nHost: here\r\n\r\n") for _ in range(2)]
        eventually(lambda: len(server.server.server_state.connections) == 2)
        refused = said(server.connect())
        assert (status(refused), b"retry-after: 1" in refused, b"too many connections" in refused) == (
            b"503",
            True,
            True,
        )
        assert [status(said(one)) for one in first] == [b"200"] * 2
        # Their places are free again.
        assert status(said(server.connect(GET))) == b"200"


def test_slow_clients_do_not_delay_shutdown(monkeypatch, caplog):
    monkeypatch.setattr(connections, "LAST", 0.2)
    with Server(header=60, body=60) as server:
        half = [server.connect(part) for part in (b"", GET[:12], HEAD, GET)]
        whole = server.connect(b"GET /slow HTTP/1.1\r\nHost: here\r\n\r\n")
        eventually(lambda: len(server.server.server_state.tasks) == 2)
        server.server.should_exit = True
        # Far below the limit of `timeout_graceful_shutdown`, at which uvicorn cancels with a stack trace.
        assert status(said(whole)) == b"200"
        server.thread.join()
        assert [status(said(one)) for one in half] == [b"", b"", b"408", b"200"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


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

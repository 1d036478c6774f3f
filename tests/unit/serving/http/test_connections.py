"""Slow clients over real sockets, with limits of some tenths of a second."""

import asyncio
import contextlib
import socket
import threading
import time
from unittest import mock

import pytest
import uvicorn

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


def opened(server):
    return list(server.server.server_state.connections)


@contextlib.contextmanager
def held(server, count, part):
    """Occupies connections with requests that are not complete, of which a byte arrives now and then."""
    made = [server.connect(part) for _ in range(count)]
    eventually(lambda: sum(one._received > 0 or one.has_asked() for one in opened(server)) == count)
    ended = threading.Event()

    def talk():
        while not ended.wait(0.03):
            for one in made:
                one.sendall(b"a")

    thread = threading.Thread(target=talk)
    thread.start()
    yield
    ended.set()
    thread.join()
    for one in made:
        one.close()


def ask(path, method=b"GET"):
    return b"%s %s HTTP/1.1\r\nHost: here\r\n\r\n" % (method, path)


HEALTH = (
    *(b"/v2/health/live", b"/v2/health/ready", b"/v2/models/a%20b/ready", b"/v2/models/a/versions/1/ready"),
    *(b"/v1/models/a", b"/v1/models/a/versions/1", b"/v1/models/a/labels/b", b"/", b"/v2/health/live?a=b"),
)
OTHERS = (
    *((b"GET", path) for path in (b"/v2/health/live/more", b"/v2/models/a", b"/v1/models")),
    *((b"POST", path) for path in (b"/v1/models/a:predict", b"/v2/health/live")),
)


@pytest.mark.parametrize("limit", ["connections", "address"])
@pytest.mark.parametrize("part", [GET[:-2] + b"A: ", HEAD.replace(b"10", b"9999"), ask(b"/slow") + GET[:5]])
def test_health_is_answered_whatever_connections_others_hold(limit, part, monkeypatch):
    # However late a busy machine sends the next byte.
    monkeypatch.setattr(connections, "SILENT", 60)
    with Server(**{limit: 3}) as server:
        with held(server, 3, part):
            for path in HEALTH:
                answer = said(server.connect(ask(path)))
                assert (status(answer), b"connection: close" in answer) == (b"200", True), path
            assert status(said(server.connect(ask(b"/v2/health/live", b"HEAD")))) == b"200"
            for method, path in OTHERS:
                assert b"too many connections" in said(server.connect(ask(path, method))), path
        eventually(lambda: not opened(server))
        # Their places are free again.
        with server.connect(GET) as new:
            assert b"connection: close" not in new.recv(2**16)


def test_a_question_about_health_may_arrive_in_parts_and_is_the_only_one(monkeypatch):
    monkeypatch.setattr(connections, "SILENT", 60)
    with Server(connections=1) as server, held(server, 1, HEAD.replace(b"10", b"9999")):
        connection = server.connect(ask(b"/v2/health/live")[:20])
        time.sleep(0.05)
        connection.sendall(ask(b"/v2/health/live")[20:] + ask(b"/predict", b"POST"))
        assert said(connection).count(b"HTTP/1.1 ") == 1


def test_the_newest_connections_for_health_replace_those_that_have_not_asked(monkeypatch):
    monkeypatch.setattr(connections, "HEALTH_ONLY", 2)
    # None of them is closed for its silence.
    monkeypatch.setattr(connections, "SILENT", 60)
    with Server(connections=1) as server, held(server, 1, HEAD.replace(b"10", b"9999")):
        waiting = [server.connect(b"G") for _ in range(5)]
        assert [status(said(one)) for one in waiting[:3]] == [b"503"] * 3
        for one in waiting[3:]:
            one.sendall(ask(b"/v2/health/live")[1:])
            assert status(said(one)) == b"200"


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

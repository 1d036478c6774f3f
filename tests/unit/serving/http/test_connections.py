"""Slow clients over real sockets, with limits of some tenths of a second."""

import contextlib
import re
import socket
import time
from unittest import mock

import pytest

from serving.http import connections
from tests.endpoint import eventually

from .limited import GET, HEAD, LARGE, Server, said, status


@pytest.fixture
def server():
    with Server(header=0.3, body=0.4) as made:
        yield made


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
        assert status(said(server.connect(start, b"x" * 2 * connections.HEAD))) == b"431"
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


def get(url):
    return b"GET %s HTTP/1.1\r\nHost: here\r\n\r\n" % url


@pytest.mark.parametrize("before", [b"", HEAD + b"0123456789"], ids=["alone", "pipelined"])
@pytest.mark.parametrize("url", [b"http://[::1/", b"http://here:x/"])
def test_a_url_that_is_none_is_refused_after_the_requests_before_it(server, before, url):
    answer = said(server.connect(before + get(url)))
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == ([b"200", b"400"] if before else [b"400"])


@pytest.mark.parametrize("query", [b"", b"?a=/b"])
def test_a_url_without_a_path_is_that_of_the_root(server, query):
    answer = said(server.connect(HEAD + b"0123456789" + get(b"http://here" + query) + get(b"HTTP://here:80" + query)))
    assert answer.count(b"200 OK") == 3
    assert server.asked == [(b"/", b""), *2 * [(b"/", query[1:])]]


CHUNKS = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = b"A: " + b"a" * (2 * connections.HEAD)


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("ended", [False, True])
def test_a_refusal_follows_the_answers_to_the_requests_before(server, others, ended):
    refused = {
        CHUNKS + b"zz\r\n": b"400",
        CHUNKS + b"1\r\na\r\n" * (2 * connections.CHUNKS): b"400",
        CHUNKS + b"0\r\n" + LONG: b"431",
        GET[:-2] + LONG: b"431",
        b"nonsense\r\n\r\n": b"400",
        # A body that is cut off is refused at once.
        HEAD + b"half": b"400" if ended else b"408",
    }
    clients = [server.connect(SLOW + others * (HEAD + b"0123456789") + last) for last in refused]
    if ended:
        for one in clients:
            one.shutdown(socket.SHUT_WR)
    for client, refusal in zip(clients, refused.values(), strict=True):
        assert re.findall(rb"HTTP/1\.1 (\d+)", said(client)) == [*(1 + others) * [b"200"], refusal]
    # None of the refused ones, whose bodies do not end, is begun.
    assert len(server.asked) == (1 + others) * len(refused)


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


def test_an_answer_may_take_its_time(server):
    assert status(said(server.connect(b"GET /slow HTTP/1.1\r\nHost: here\r\n\r\n"))) == b"200"


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

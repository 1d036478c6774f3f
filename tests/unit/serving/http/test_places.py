"""Places for connections, over real sockets: who makes room, and health beyond the limits."""

import contextlib
import threading
import time
from pathlib import Path

import pytest

from serving.endpoint.serve import RESERVE
from serving.engine.readiness import HEALTH_ONLY
from serving.http import places
from serving.http.connections import LimitedProtocol
from tests.endpoint import eventually

from .limited import GET, HEAD, LARGE, REFUSED, Server, said, status


def test_unread_answers_have_a_common_limit(monkeypatch):
    monkeypatch.setattr(places, "UNREAD", LARGE * 3 // 2)
    with Server() as server:
        unread = []
        for number in range(2):
            unread.append(server.connect(b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n"))
            eventually(lambda number=number: len(server.ended) == number + 1)
        # The older one makes room.
        assert [len(said(one)) > LARGE for one in unread] == [False, True]


@pytest.mark.parametrize("limit", ["connections", "address"])
def test_the_longest_silent_connection_makes_room(limit, monkeypatch):
    monkeypatch.setattr(places, "SILENT", 0.0)
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
    monkeypatch.setattr(places, "SILENT", 0.0)
    with Server(connections=2) as server:
        sending = server.connect(HEAD)
        time.sleep(0.01)
        silent = server.connect(GET[:12])
        time.sleep(0.01)
        sending.sendall(b"half")
        eventually(lambda: any(one._received == 4 for one in server.opened()))
        with server.connect(GET) as new:
            assert status(new.recv(2**16)) == b"200"
            assert said(silent) == b""
            sending.sendall(b"other.")
            assert status(said(sending)) == b"200"


def test_connections_beyond_the_limit_are_refused():
    with Server(connections=2) as server:
        first = [server.connect(b"GET /slow HTTP/1.1\r\nHost: here\r\n\r\n") for _ in range(2)]
        eventually(lambda: len(server.opened()) == 2)
        refused = said(server.connect())
        assert (status(refused), b"retry-after: 1" in refused, b"too many connections" in refused) == (
            b"503",
            True,
            True,
        )
        assert [status(said(one)) for one in first] == [b"200"] * 2
        # Their places are free again.
        assert status(said(server.connect(GET))) == b"200"


@contextlib.contextmanager
def held(server, count, part):
    """Occupies connections with requests that are not complete, of which a byte arrives now and then."""
    made = [server.connect(part) for _ in range(count)]
    eventually(lambda: sum(one._received > 0 or one.has_asked() for one in server.opened()) == count)
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
    monkeypatch.setattr(places, "SILENT", 60)
    with Server(**{limit: 3}) as server:
        with held(server, 3, part):
            for path in HEALTH:
                answer = said(server.connect(ask(path)))
                assert (status(answer), b"connection: close" in answer) == (b"200", True), path
            assert status(said(server.connect(ask(b"/v2/health/live", b"HEAD")))) == b"200"
            for method, path in OTHERS:
                assert b"too many connections" in said(server.connect(ask(path, method))), path
        eventually(lambda: not server.opened())
        # Their places are free again.
        with server.connect(GET) as new:
            assert b"connection: close" not in new.recv(2**16)


def test_a_question_about_health_may_arrive_in_parts_and_is_the_only_one(monkeypatch):
    monkeypatch.setattr(places, "SILENT", 60)
    with Server(connections=1) as server, held(server, 1, HEAD.replace(b"10", b"9999")):
        connection = server.connect(ask(b"/v2/health/live")[:20])
        time.sleep(0.05)
        connection.sendall(ask(b"/v2/health/live")[20:] + ask(b"/predict", b"POST"))
        assert said(connection).count(b"HTTP/1.1 ") == 1


def test_the_newest_connections_for_health_replace_those_that_have_not_asked(monkeypatch):
    monkeypatch.setattr(places, "HEALTH_ONLY", 2)
    # None of them is closed for its silence.
    monkeypatch.setattr(places, "SILENT", 60)
    with Server(connections=1) as server, held(server, 1, HEAD.replace(b"10", b"9999")):
        waiting = [server.connect(b"G") for _ in range(5)]
        assert [status(said(one)) for one in waiting[:3]] == [b"503"] * 3
        for one in waiting[3:]:
            one.sendall(ask(b"/v2/health/live")[1:])
            assert status(said(one)) == b"200"


def test_connections_that_linger_make_room_for_questions_about_health(monkeypatch):
    monkeypatch.setattr(places, "HEALTH_ONLY", 2)
    monkeypatch.setattr(places, "SILENT", 60)
    with Server(connections=1) as server, held(server, 1, HEAD.replace(b"10", b"9999")):
        refused = [server.connect(HEAD + b"half") for _ in range(4)]
        assert [status(one.recv(2**16)) for one in refused] == [b"503"] * 4
        eventually(lambda: len(server.opened()) == 3)
        assert status(said(server.connect(ask(b"/v2/health/live")))) == b"200"
        for one in refused:
            one.close()


def test_a_connection_that_lingers_makes_room(monkeypatch):
    monkeypatch.setattr(places, "SILENT", 0.0)
    with Server(connections=1) as server, server.connect(REFUSED) as refused:
        assert status(refused.recv(2**16)) == b"200"
        (lingering,) = server.opened()
        assert lingering.transport.lingers
        assert status(said(server.connect(GET))) == b"200"


def test_connections_that_wait_are_accepted_together_once_all_places_are_taken(monkeypatch):
    monkeypatch.setattr(places, "SILENT", 60)
    another, accepted = LimitedProtocol.another, []
    monkeypatch.setattr(LimitedProtocol, "another", lambda one: accepted.append(one) or another(one))
    with Server(alone=True, connections=1) as server, held(server, 1, HEAD.replace(b"10", b"9999")):
        until = threading.Event()
        (one,) = server.opened()
        one.loop.call_soon_threadsafe(until.wait)
        waiting = [server.connect(ask(b"/v2/health/live" if number % 2 else b"/predict")) for number in range(20)]
        until.set()
        assert [status(said(one)) for one in waiting] == [b"503", b"200"] * 10
        assert accepted
        eventually(lambda: len(server.opened()) == 1)


def test_files_are_reserved_for_all_connections_beyond_the_limits(monkeypatch):
    monkeypatch.setattr(places, "SILENT", 60)
    another, opened = LimitedProtocol.another, []

    def files():
        return len(list(Path("/dev/fd").iterdir()))

    def counted_another(one):
        opened.append(files())
        return another(one)

    monkeypatch.setattr(LimitedProtocol, "another", counted_another)
    with Server(alone=True, connections=1) as server, held(server, 1, HEAD.replace(b"10", b"9999")):
        clients = [server.connect() for _ in range(HEALTH_ONLY)]
        eventually(lambda: len(server.opened()) == HEALTH_ONLY + 1)
        until = threading.Event()
        server.opened()[0].loop.call_soon_threadsafe(until.wait)
        clients += [server.connect() for _ in range(2 * HEALTH_ONLY)]
        before = files()
        opened.clear()
        until.set()
        eventually(lambda: opened)
        for one in clients:
            one.close()
    assert HEALTH_ONLY < HEALTH_ONLY + max(opened) - before <= RESERVE

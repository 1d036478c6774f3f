"""The time between SIGTERM and the end."""

import asyncio
import signal
import threading

import uvicorn

from serving.http.server import DrainingServer


def started(seconds, draining):
    """Returns a server that accepts connections."""
    server = DrainingServer(uvicorn.Config(None), seconds, draining, threading.Event())
    server.started = True
    return server


def stopped(server):
    """Returns whether the server stops at the next tick."""
    return asyncio.run(server.on_tick(1))


def test_the_port_stays_open_until_the_time_is_over(monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    draining = threading.Event()
    server = started(5.0, draining)
    assert not stopped(server)
    server.handle_exit(signal.SIGTERM, None)
    assert draining.is_set()
    now = 104.9
    assert not stopped(server)
    now = 105.0
    assert stopped(server)


def test_a_second_signal_stops_at_once():
    for second in (signal.SIGTERM, signal.SIGINT):
        server = started(60.0, threading.Event())
        server.handle_exit(signal.SIGTERM, None)
        assert not stopped(server)
        server.handle_exit(second, None)
        assert stopped(server)


def test_without_a_time_the_first_signal_stops():
    draining = threading.Event()
    server = started(0.0, draining)
    server.handle_exit(signal.SIGTERM, None)
    assert stopped(server)
    assert not draining.is_set()


def test_a_server_that_accepts_no_connections_yet_stops_at_once():
    draining, closing = threading.Event(), threading.Event()
    server = DrainingServer(uvicorn.Config(None), 60.0, draining, closing)
    server.handle_exit(signal.SIGTERM, None)
    assert stopped(server)
    assert closing.is_set()
    assert not draining.is_set()

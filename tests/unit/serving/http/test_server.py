"""The time between SIGTERM and the end."""

import asyncio
import signal
import threading

import uvicorn

from serving.http.server import DrainingServer


def stopped(server):
    """Returns whether the server stops at the next tick."""
    return asyncio.run(server.on_tick(1))


def test_the_port_stays_open_until_the_time_is_over(monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    draining = threading.Event()
    server = DrainingServer(uvicorn.Config(None), 5.0, draining, threading.Event())
    assert not stopped(server)
    server.handle_exit(signal.SIGTERM, None)
    assert draining.is_set()
    now = 104.9
    assert not stopped(server)
    now = 105.0
    assert stopped(server)


def test_a_second_signal_stops_at_once():
    for second in (signal.SIGTERM, signal.SIGINT):
        server = DrainingServer(uvicorn.Config(None), 60.0, threading.Event(), threading.Event())
        server.handle_exit(signal.SIGTERM, None)
        assert not stopped(server)
        server.handle_exit(second, None)
        assert stopped(server)


def test_without_a_time_the_first_signal_stops():
    draining = threading.Event()
    server = DrainingServer(uvicorn.Config(None), 0.0, draining, threading.Event())
    server.handle_exit(signal.SIGTERM, None)
    assert stopped(server)
    assert not draining.is_set()

"""Runs an app with uvicorn until it is asked to stop."""

import math
import os
import signal
import socket
import threading
import time
from types import FrameType

import uvicorn

from serving.engine.settings import Limits, Settings
from serving.http.connections import protocol
from serving.http.middleware import App


class DrainingServer(uvicorn.Server):
    """A server that keeps answering for a while after SIGTERM, so that load balancers can take it out first.

    A second SIGTERM, or SIGINT, stops it at once.

    Args:
        config: configuration of uvicorn.
        seconds: time from SIGTERM until the port closes.
        draining: set at SIGTERM; from then on, the app must not report that it is ready.
        closing: set when the port closes, for servers on other ports.

    Example:
        from uvicorn import Config

        DrainingServer(Config(app), 5.0, settings.draining, settings.closing)
    """

    def __init__(
        self, config: uvicorn.Config, seconds: float, draining: threading.Event, closing: threading.Event
    ) -> None:
        super().__init__(config)
        self._seconds, self._draining, self._closing = seconds, draining, closing
        self._end: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Starts draining, or stops."""
        if not self.started:
            # No connection has been accepted yet.
            self._closing.set()
            super().handle_exit(sig, frame)
        elif sig == signal.SIGTERM and self._seconds and not self._draining.is_set():
            self._end = time.monotonic() + self._seconds
            self._draining.set()
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Stops at the end of the time; uvicorn calls it ten times per second."""
        if self._end is not None and time.monotonic() >= self._end:
            self._end = None
            super().handle_exit(signal.SIGTERM, None)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the port, and answers the requests that have arrived."""
        self._closing.set()
        await super().shutdown(sockets)


def run(
    app: App, listening: socket.socket, limits: Limits, settings: Settings, *, shutdown: float, drain: float
) -> None:
    """Serves an app until SIGTERM, which ends the process with status 0, or SIGINT.

    Args:
        app: the app.
        listening: listening socket.
        limits: limits on connections.
        settings: settings of the app, whose events are set at the end.
        shutdown: maximum seconds for the requests in flight once the port has been closed.
        drain: seconds from SIGTERM until then.
    """
    listening.setblocking(False)
    config = uvicorn.Config(
        app,
        http=protocol(limits, None if settings.crashes else listening),
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=math.ceil(shutdown),
    )
    # uvicorn raises the signal again after it has stopped, but a requested stop is not a failure. `os._exit`, because
    # Python's own exit would wait for a prediction that never ends.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    DrainingServer(config, drain, settings.draining, settings.closing).run([listening])

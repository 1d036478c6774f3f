"""KerasTuner's client with retries and heartbeats, without which it would wait an hour for a chief that is gone."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import grpc

from pipelines.core.errors import UserError

PATIENCE = 120.0
"""Seconds that a worker waits for its chief, which may be restarting."""
PING = 1.0
"""Seconds between two heartbeats, and between two requests of an idle worker."""
UNREACHED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class RetryingStub:
    """Stub for KerasTuner's client that retries calls for up to `PATIENCE` seconds.

    Every call is idempotent: the chief returns the trial that a worker already has, and ends a trial only once.

    Args:
        stub: the stub of the chief's service.
    """

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda request, **_: self._call(getattr(self._stub, name), request)

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        until = time.monotonic() + PATIENCE
        while (left := until - time.monotonic()) > 0:
            try:
                return method(request, wait_for_ready=True, timeout=left)
            except grpc.RpcError as error:
                if error.code() not in UNREACHED:
                    raise
                time.sleep(min(PING, left))
        address = f"{os.environ['KERASTUNER_ORACLE_IP']}:{os.environ['KERASTUNER_ORACLE_PORT']}"
        raise UserError(
            f"the chief at {address} has not answered for {PATIENCE:.0f} s. "
            f"Start it with the same command and KERASTUNER_TUNER_ID=chief, or check the address."
        )


class ChiefClient:
    """KerasTuner's client with retries and heartbeats; it pauses between requests while there is no trial.

    Args:
        client: KerasTuner's proxy of the oracle in a worker.
    """

    def __init__(self, client: Any) -> None:
        client.stub = RetryingStub(client.stub)
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create_trial(self, tuner_id: str) -> Any:
        """Waits for the next trial and returns it."""
        while (trial := self._client.create_trial(tuner_id)).status == "IDLE":
            time.sleep(PING)
        return trial

    @contextmanager
    def heartbeat(self, trial_id: str, leave: Callable[[str | UserError], None]) -> Iterator[None]:
        """Sends heartbeats while a trial runs.

        Args:
            trial_id: the trial.
            leave: called in another thread: with the trial's status if the chief no longer wants the trial, or with the
                error if the chief is gone.
        """
        done = Event()

        def ping() -> None:
            while not done.wait(PING):
                try:
                    status = self._client.get_trial(trial_id).status
                except UserError as error:
                    leave(error)
                    return
                if status != "RUNNING" and not done.is_set():
                    leave(status)
                    return

        thread = Thread(target=ping, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

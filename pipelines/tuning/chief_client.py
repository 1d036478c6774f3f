"""What a worker says to its chief: KerasTuner's client, which would wait an hour for a chief that is gone."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import grpc

from pipelines.core.errors import UserError

PATIENCE = 120.0
"""Seconds that a worker waits for its chief, who may be starting again."""
PING = 1.0
"""Seconds between two signs of life, and between two questions of an idle worker."""
UNREACHED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class Patient:
    """The stub of KerasTuner's client, whose calls are repeated until the chief answers or `PATIENCE` is over.

    Every call may be repeated: the chief gives a worker the trial that it has, and ends a trial once.

    Args:
        stub: of the chief's service.
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
            f"Start it with KERASTUNER_TUNER_ID=chief and the same command, or check the address."
        )


class Link:
    """KerasTuner's client with patience, which does not ask without a pause when there is nothing to do.

    Args:
        client: `keras_tuner`'s stand-in for the oracle in a worker.
    """

    def __init__(self, client: Any) -> None:
        client.stub = Patient(client.stub)
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create_trial(self, tuner_id: str) -> Any:
        """The next trial, once there is one."""
        while (trial := self._client.create_trial(tuner_id)).status == "IDLE":
            time.sleep(PING)
        return trial

    @contextmanager
    def heartbeat(self, trial_id: str, leave: Callable[[str | UserError], None]) -> Iterator[None]:
        """Gives signs of life while a trial runs.

        Args:
            trial_id: the trial.
            leave: called, in a thread of its own, when the chief does not want the trial any more, with the status
                that it has there; or when the chief is gone, with the error.
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

        thread = Thread(target=ping, name="signs of life", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

"""A task on a node of a cluster: checks that the node has the same code, and runs the task on cores of its own."""

import os
import pickle
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pipelines.core import environment
from pipelines.core.core_locks import pinned
from pipelines.core.errors import StoppedError, UserError
from pipelines.core.executor import Outcome, attempt


def perform(setting: Mapping[str, Any], key: str, content: bytes) -> Outcome | str:
    """Runs a task on this node.

    Args:
        setting: see `pipelines.core.cluster_executor`.
        key: key of the task.
        content: the task and its function, pickled.

    Returns:
        The outcome; or a sentence that ends all tasks, because this node has other code or a full disk.

    Raises:
        SystemExit: a signal ended the task, which another process takes over.
    """
    if refusal := _refusal(environment.installed(), setting["installed"]):
        return refusal
    os.environ.update(setting["variables"])
    # Tasks may name paths relative to it. They say what is wrong if a node does not have what they name.
    with suppress(OSError):
        os.chdir(setting["folder"])
    with pinned(setting["cores"]):
        try:
            return attempt(key, *pickle.loads(content))
        except UserError as error:
            return f"{error} This was on the node {socket.gethostname()}."
        except StoppedError as stopped:
            sys.exit(128 + stopped.number)


def _refusal(here: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Returns a sentence about the first difference between what this node and the leading machine have installed."""
    name = next((name for name in {**wanted, **here} if here.get(name) != wanted.get(name)), None)
    if name is None:
        return ""
    node = f"the node {socket.gethostname()} has"
    if name == "code":
        return f"{node} other code of highway-keras {here['highway-keras']} than this machine. Install the same there."
    found, expected = (f"{name} {one[name]}" if name in one else f"no {name}" for one in (here, wanted))
    return f"{node} {found}, and this machine has {expected}. Install the same there."

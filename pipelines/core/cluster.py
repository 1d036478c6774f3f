"""Connects this process to a Ray cluster, safely and within seconds. Imported for `--cluster` only.

Anyone who can reach a cluster can run any program on its nodes. Ray listens on all interfaces of a machine, whatever
address it is given, and asks for a token only if its nodes were started with one. A cluster without one is therefore
refused, unless the loopback interface's address is the machine's only one.
"""

import ipaddress
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.core.errors import UserError, chain
from pipelines.core.frameworks import hushed

AUTO = "auto"
"""The address of the cluster that this machine belongs to."""
WAIT = 20
"""Seconds to wait for an answer of the cluster."""
SILENT, PERIOD = 30.0, 5.0
"""Seconds without an answer of the head after which that is reported, and between two questions."""
MODE, TOKEN = "RAY_AUTH_MODE", "token"
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # sends data to its makers
    "RAY_BACKEND_LOG_LEVEL": "error",  # the log of its C++ code
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # messages of nodes, which it prints between the results of this program
    "RAY_gcs_server_request_timeout_seconds": str(WAIT),
}
"""Defaults of Ray's own settings."""
GUIDE = "The guide to several machines (docs/scaling.md) says how to start a cluster."
# A host and a port; the colons of an IPv6 address are in brackets.
_FORM = re.compile(r"([^\s:\[\]/]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
# A service of every head, which is asked without a token first.
_SERVICE = "/ray.rpc.NodeInfoGcsService/CheckAlive"


def connect(address: str) -> Any:
    """Connects this process to a cluster, until `ray.shutdown`.

    Args:
        address: HOST:PORT of its head, or `AUTO`.

    Returns:
        The module `ray`.

    Raises:
        UserError: Ray is missing or has another version, the cluster cannot be reached within seconds, does not ask for
            a token or does not accept this one, or this machine does not belong to it.

    Example:
        ray = connect("10.0.0.1:6379")
    """
    ray = _imported()
    head = _head(address)
    if not _accepts(head, None):
        token = _token()
        if token is None or not _accepts(head, token):
            found = "does not accept that of" if token else "there is none on"
            raise UserError(
                f"the cluster at {head} asks for a token, and {found} this machine. Copy that of the head to "
                "~/.ray/auth_token, or set RAY_AUTH_TOKEN_PATH to its file."
            )
        if (mode := os.environ.get(MODE, "")).lower() != TOKEN:
            # Ray would send none, and repeat its question for 20 s.
            raise UserError(f"the cluster at {head} asks for a token. Set {MODE} to {TOKEN}. Received: {mode}.")
    elif not _is_loopback(head):
        raise UserError(
            f"the cluster at {head} asks for no token: anyone who can reach it can run any program on its nodes. "
            f"Stop it, copy a token (`ray get-auth-token --generate`) to all nodes, and start them with "
            f"{MODE}={TOKEN}. {GUIDE}"
        )
    if not _runs_ray():
        # Ray would wait for 20 s.
        raise _outsider(head)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with hushed():
            ray.init(head, configure_logging=False, log_to_driver=False)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        ray.shutdown()
        raise _refusal(head, error) from error
    finally:
        # Ray's own handler would end the program with another status.
        signal.signal(signal.SIGTERM, before)
    return ray


def watch(head: str, report: Callable[[str], None]) -> Callable[[], None]:
    """Reports when the head of a cluster has ceased to answer.

    Ray ends the process a minute after the last answer, from its C++ code: no error could be raised then.

    Args:
        head: HOST:PORT of the head.
        report: prints a line; called by a thread.

    Returns:
        A function that ends the watch.
    """
    ended = threading.Event()
    threading.Thread(target=_watch, args=(head, report, ended), name="head", daemon=True).start()
    return ended.set


def _watch(head: str, report: Callable[[str], None], ended: threading.Event) -> None:
    answered, reported = time.monotonic(), False
    while not ended.wait(PERIOD):
        try:
            _accepts(head, _token())
        except UserError:
            if reported or ended.is_set() or time.monotonic() - answered < SILENT:
                continue
            report(
                f"the head of the cluster at {head} does not answer any more; Ray ends this command a minute after its "
                "last answer. What is finished or saved is kept: repeat the command once the head is back, or with "
                "another cluster. A training run continues with --resume."
            )
            reported = True
        else:
            answered, reported = time.monotonic(), False


def _imported() -> Any:
    # Ray reads its settings while it is imported.
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if _token():
        os.environ.setdefault(MODE, TOKEN)
    try:
        import ray
    except ImportError as error:
        raise UserError("--cluster needs Ray on every node: install highway-keras[cluster] there.") from error
    return ray


def _head(address: str) -> str:
    """Returns HOST:PORT of the head."""
    if address != AUTO and not _FORM.fullmatch(address):
        # Ray would log a stack trace.
        raise _malformed(address)
    from ray._private import services

    try:
        with hushed():
            head: str | None = services.canonicalize_bootstrap_address(address)
    except ConnectionError:
        head = None
    except ValueError:
        raise _malformed(address) from None
    if head is None:
        raise UserError(
            f"this machine belongs to no Ray cluster. Start Ray on it, or name a head with --cluster HOST:PORT. {GUIDE}"
        )
    return head


def _runs_ray() -> bool:
    """Returns whether a node of any cluster runs on this machine."""
    from ray._private import services

    return bool(services.find_node_ids())


def _malformed(address: str) -> UserError:
    return UserError(f"--cluster must be HOST:PORT or {AUTO}. Received: {address}.")


def _accepts(head: str, token: str | None) -> bool:
    """Returns whether a cluster answers a request with a token, or without one.

    Raises:
        UserError: it does not answer at all.
    """
    import grpc

    sent = [("authorization", f"Bearer {token}")] if token else None
    with grpc.insecure_channel(head, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(_SERVICE)(b"", timeout=WAIT, metadata=sent)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                return False
            raise UserError(
                f"no Ray cluster answers at {head}. Check the address of its head, and that no firewall blocks it. "
                f"{GUIDE}"
            ) from error
    return True


def _token() -> str | None:
    """Returns the token that Ray finds on this machine, in the places that its guide names."""
    if given := os.environ.get("RAY_AUTH_TOKEN"):
        return _printable(given, "RAY_AUTH_TOKEN")
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        return _printable(path.read_text(encoding="utf-8", errors="replace"), path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path} with the cluster's token cannot be read ({error.strerror}).") from error


def _printable(text: str, place: object) -> str:
    """Returns a token without the white space around it, if a request can carry it."""
    token = text.strip()
    if not (token.isascii() and token.isprintable()):
        raise UserError(f"{place} must hold a token, one line of letters and digits. Copy that of the head there.")
    return token


def _is_loopback(head: str) -> bool:
    host = head.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refusal(head: str, error: Exception) -> UserError:
    text = " ".join(" ".join(str(link) for link in chain(error)).split())
    if "No node info found" in text:
        return _outsider(head)
    return UserError(f"the cluster at {head} cannot be used: {text}")


def _outsider(head: str) -> UserError:
    return UserError(
        f"this machine is not a node of the cluster at {head}. Start Ray on it: `ray start --address={head}`, with "
        "--num-cpus=0 if it is to run no tasks."
    )

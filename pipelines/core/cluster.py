"""Connects this process to a Ray cluster, safely and within seconds. Imported for `--cluster` only.

Whoever reaches a cluster can run any program on its nodes. Ray listens on all interfaces of a machine, whatever address
it is given, and asks for a token only if its nodes were started with one. A cluster without is therefore refused,
unless the machine has no other address than the loopback interface's.
"""

import ipaddress
import os
import signal
from pathlib import Path
from typing import Any

from pipelines.core.errors import UserError

AUTO = "auto"
"""The address of the cluster that this machine belongs to."""
WAIT = 20
"""Seconds to wait for an answer of the cluster."""
MODE, TOKEN = "RAY_AUTH_MODE", "token"
GUIDE = "The guide to several machines (docs/scaling.md) says how to start a cluster."
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
    if _asks_for_token(head):
        if not _has_token():
            raise UserError(
                f"the cluster at {head} asks for a token, and this machine has none. Copy that of the head to "
                "~/.ray/auth_token, or set RAY_AUTH_TOKEN_PATH to its file."
            )
    elif not _is_loopback(head):
        raise UserError(
            f"the cluster at {head} asks for no token: whoever reaches it can run any program on its nodes. Stop it, "
            f"copy a token (`ray get-auth-token --generate`) to all nodes, and start them with {MODE}={TOKEN}. {GUIDE}"
        )
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(head, configure_logging=False, log_to_driver=False)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        ray.shutdown()
        raise _refusal(head, error) from error
    finally:
        # Ray's own handler would end the program with another status.
        signal.signal(signal.SIGTERM, before)
    return ray


def _imported() -> Any:
    # Ray reads its settings while it is imported, and sends statistics to its makers by default.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", str(WAIT))
    if _has_token():
        os.environ.setdefault(MODE, TOKEN)
    try:
        import ray
    except ImportError as error:
        raise UserError("--cluster needs Ray on every node: install highway-keras[cluster] there.") from error
    return ray


def _head(address: str) -> str:
    """Returns HOST:PORT of the head."""
    from ray._private import services

    try:
        head: str | None = services.canonicalize_bootstrap_address(address)
    except ConnectionError:
        head = None
    except ValueError:
        raise UserError(f"--cluster must be HOST:PORT or {AUTO}. Received: {address}.") from None
    if head is None:
        raise UserError(
            f"this machine belongs to no Ray cluster. Start Ray on it, or name a head with --cluster HOST:PORT. {GUIDE}"
        )
    return head


def _asks_for_token(head: str) -> bool:
    """Returns whether a cluster refuses a request without a token."""
    import grpc

    with grpc.insecure_channel(head, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(_SERVICE)(b"", timeout=WAIT, wait_for_ready=False)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                return True
            raise UserError(
                f"no Ray cluster answers at {head}. Check the address of its head, and that no firewall is between. "
                f"{GUIDE}"
            ) from error
    return False


def _has_token() -> bool:
    """Returns whether Ray finds a token, in the places that its guide names."""
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or Path(path).is_file()


def _is_loopback(head: str) -> bool:
    host = head.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refusal(head: str, error: Exception) -> UserError:
    import ray

    if isinstance(error, ray.exceptions.AuthenticationError):
        return UserError(f"the cluster at {head} does not accept the token of this machine. Copy that of the head.")
    text = " ".join(str(error).split())
    return UserError(f"{head} cannot be used: {text}")

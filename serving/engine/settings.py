"""Settings of an endpoint."""

import math
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from serving.engine.crashes import Crashes
from serving.engine.readiness import Readiness
from serving.image_files import PIXELS
from serving.protocols.request import IMAGES

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores(quota: Path = _QUOTA) -> int:
    """Counts the cores that this process may use.

    Args:
        quota: file with the CPU quota of the container, on Linux.

    Returns:
        At least 1.

    Example:
        Settings(Path("models"), threads=cores())
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        limit, period = map(float, quota.read_text().split())
    except (OSError, ValueError):
        # No such file, or "max" for no limit.
        return allowed
    return min(allowed, max(math.ceil(limit / period), 1))


@dataclass(frozen=True)
class Settings:
    """Settings of an endpoint, for any backend; limits hold for one process."""

    models: Path
    """The model repository."""
    tf_serving: str | None = None
    """Address of the TF Serving server that predicts, HOST:PORT (gRPC) or http://HOST:PORT (REST); None predicts in
    this process."""
    poll: float = 1.0
    """Seconds between two checks of the repository."""
    threads: int = field(default_factory=cores)
    """Batches computed in parallel, each on one core; as many image files are decoded in parallel."""
    batch: int = 64
    """Largest batch, in images."""
    queue: int = 1024
    """Images that may wait for each model version, and files of small images that may wait to be decoded; more are
    refused with 503 and Retry-After."""
    timeout: float = 30.0
    """Seconds after which a request is answered with 504."""
    body: int = 32 * 2**20
    """Largest request body, in bytes."""
    bodies: int = 512 * 2**20
    """Bytes of all requests in flight; more are refused with 503 and Retry-After."""
    images: int = IMAGES
    """Images in one request."""
    pixels: int = PIXELS
    """Pixels of an image file, width times height."""
    decoders: int = field(default_factory=cores)
    """Processes that decode large image files, each with up to 384 MiB (`serving.engine.decoding`)."""
    large: int = 64
    """Large image files that may wait for these processes; more are refused with 503 and Retry-After."""
    api_key: str | None = None
    """Key that clients must send as `Authorization: Bearer KEY` or `X-API-Key: KEY`."""
    key_file: Path | None = None
    """File with further keys (`serving.keys`); without any key, everyone is admitted."""
    rate: float | None = None
    """Requests per second that each key may send; more are refused with 429 and Retry-After. None sets no limit."""
    hosts: tuple[str, ...] = ()
    """Names of the endpoint that the Host header of a request may have; any, if empty."""
    draining: threading.Event = field(default_factory=threading.Event)
    """Set once the endpoint is about to stop: it still answers, but is no longer ready."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Set once the ports close: requests that have arrived are still answered, later ones are not."""
    trust: tuple[bytes, ...] = ()
    """Public keys (`serving.signature`), one of which must have signed a version; without any, unsigned versions
    are served too."""
    origins: tuple[str, ...] = ()
    """Other web sites whose pages may call the endpoint (CORS); "*" is all."""
    crashes: Crashes | None = None
    """Versions that crashed a worker process, which are not served again; None without a supervisor."""
    readiness: Readiness = field(default_factory=Readiness)
    """State of the workers that share the port, which decides when each accepts connections."""
    bucket: str | None = None
    """URL of the repository that `models` is a copy of (`serving.bucket`); None if it is not a copy."""


@dataclass(frozen=True)
class Limits:
    """Limits on connections; times in seconds."""

    header: float = 10.0
    """For the head of a request, from its first byte or from the start of the connection."""
    body: float = 30.0
    """For its body, plus one second per `serving.http.connections.RATE` bytes, and for reading the answer."""
    idle: float = 75.0
    """Between two requests on one connection."""
    connections: int = 1024
    """Connections in total."""
    address: int = 256
    """Connections from one address."""

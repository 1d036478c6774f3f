"""What an endpoint is told when it starts."""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from serving.pictures import PIXELS
from serving.protocols.request import PICTURES

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores(quota: Path = _QUOTA) -> int:
    """Counts the cores that this process may use.

    Args:
        quota: file in which Linux says how much of them a container may use.

    Returns:
        At least 1.

    Example:
        Settings(Path("models"), threads=cores())
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        most, period = map(float, quota.read_text().split())
    except (OSError, ValueError):
        # There is no such file, or it says "max".
        return allowed
    return min(allowed, max(math.ceil(most / period), 1))


@dataclass(frozen=True)
class Settings:
    """Of the endpoint, whatever computes its predictions."""

    models: Path
    """The repository."""
    tf_serving: str | None = None
    """Address of the TF Serving server that computes, HOST:PORT (gRPC) or http://HOST:PORT (REST); None computes in
    this process."""
    poll: float = 1.0
    """Seconds between two looks at the repository."""
    threads: int = field(default_factory=cores)
    """Batches that are computed at the same time, each by one core; as many picture files are decoded."""
    batch: int = 64
    """Pictures that are predicted together, at most."""
    queue: int = 1024
    """Pictures that may wait for each model version, and picture files that may wait to be decoded; more are refused
    with 503 and Retry-After."""
    timeout: float = 30.0
    """Seconds after which a request is answered with 504."""
    body: int = 32 * 2**20
    """Bytes of a request."""
    bodies: int = 512 * 2**20
    """Bytes of all requests that are being answered; more are refused with 503 and Retry-After."""
    pictures: int = PICTURES
    """Pictures of a request."""
    pixels: int = PIXELS
    """Pixels of a picture file, width times height."""
    decoders: int = field(default_factory=cores)
    """Processes that decode large picture files, each with up to 384 MiB (`serving.decoding`)."""
    large: int = 64
    """Large picture files that may wait for them; more are refused with 503 and Retry-After."""
    api_key: str | None = None
    """What clients must send as `Authorization: Bearer KEY` or `X-API-Key: KEY`; None lets everybody in."""
    trust: tuple[bytes, ...] = ()
    """Public keys (`serving.signature`), one of which must have signed a version; none serves unsigned versions too."""
    origins: tuple[str, ...] = ()
    """Web sites, besides the endpoint's own page, whose pages may ask it (CORS); "*" is all."""

"""What an endpoint is told when it starts."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from serving.pictures import PIXELS


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
    pictures: int = 256
    """Pictures of a request."""
    pixels: int = PIXELS
    """Pixels of a picture file, width times height."""
    decoders: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes that decode large picture files, each with up to 384 MiB (`serving.decoding`)."""
    large: int = 64
    """Large picture files that may wait for them; more are refused with 503 and Retry-After."""
    api_key: str | None = None
    """What clients must send as `Authorization: Bearer KEY` or `X-API-Key: KEY`; None lets everybody in."""
    origins: tuple[str, ...] = ()
    """Web sites, besides the endpoint's own page, whose pages may ask it (CORS); "*" is all."""

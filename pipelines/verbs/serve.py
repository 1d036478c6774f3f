"""`highway serve`: the endpoint over a model repository. Needs neither TensorFlow nor Keras."""

import ipaddress
import logging
import math
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import tyro
from pydantic import Field

from pipelines.core.config import Frozen
from pipelines.core.environment import API_KEY
from pipelines.core.errors import UserError
from pipelines.core.parsing import parse

# Seconds that answers have to be written after SIGTERM, beyond the time for a prediction.
GRACE = 5


class Arguments(Frozen):
    """Serves all models of a repository: TF Serving's REST paths, the Open Inference Protocol, pictures, and a page."""

    models: tyro.conf.Positional[Path] = Path("models")
    """The model repository, with a folder for each model."""
    backend: Literal["onnxruntime", "tf-serving"] = "onnxruntime"
    """What computes predictions: ONNX Runtime in this process, or a TF Serving server over the same repository."""
    address: str | None = None
    """Of the TF Serving server: HOST:PORT for gRPC, http://HOST:PORT for REST, which is slower."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is all of this machine's."""
    port: Annotated[int, Field(ge=0, lt=65_536)] = 8501
    """Port to listen on; 0 is a free one."""
    key: Literal["environment", "none"] = "environment"
    """Clients must send the key in the environment variable HIGHWAY_API_KEY, if there is one. "none" lets everybody in,
    and must be said where the address is not this machine's own."""
    origins: tuple[str, ...] = ()
    """Web sites whose pages may ask this endpoint; "none" must be said where the address is not this machine's own, if
    there are none."""
    queue: Annotated[int, Field(ge=1)] = 1024
    """Pictures that may wait for each model version; more are refused with 503."""
    timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds after which a request is answered with 504."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """Batches that are computed at the same time, each on a core of its own; None is one for each core that this
    process may use."""
    header_timeout: Annotated[float, Field(gt=0)] = 10.0
    """Seconds that a client has for the head of a request."""
    body_timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds that it has for the body, and one more for each 64 KiB; and to read the answer."""
    idle_timeout: Annotated[float, Field(gt=0)] = 75.0
    """Seconds that a connection may be idle between two requests: longer than a proxy in front of it keeps it."""
    connections: Annotated[int, Field(ge=1)] = 1024
    """Connections in all; the one that has been silent longest makes room for another, which is refused with 503
    otherwise."""
    address_connections: Annotated[int, Field(ge=1)] = 256
    """Connections from one address, which may be that of a proxy."""
    trust: tuple[Path, ...] = ()
    """Serve only versions that were signed (`highway export --sign`) with one of these keys: PEM files with Ed25519
    public keys."""
    quiet: bool = False
    """Write no line for each request."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway serve`.

    Raises:
        UserError: there is no such folder or key, the address cannot be used, or access must be decided upon.
    """
    given = parse(Arguments, arguments, "highway serve", Arguments.__doc__ or "")
    if not given.trust and "--trust" in arguments:
        # As where a variable in a script is empty: it must not let every version in.
        raise UserError("--trust needs a PEM file with an Ed25519 public key. Leave it out to serve unsigned versions.")
    key, origins = _access(given)
    _check_address(given)
    if not given.models.is_dir():
        raise UserError(f"there is no folder {given.models}. Export a model with `highway export`, or name its folder.")
    import uvicorn

    from serving import connections, memory, signature
    from serving.app import make_app
    from serving.settings import Settings, cores

    try:
        trust = tuple(signature.public_key(path) for path in given.trust)
    except signature.KeyFileError as error:
        raise UserError(str(error)) from error
    memory.one_heap()
    _log(given.quiet)
    settings = Settings(
        given.models,
        given.address,
        threads=given.threads or cores(),
        queue=given.queue,
        timeout=given.timeout,
        api_key=key,
        origins=origins,
        trust=trust,
    )
    limits = connections.Limits(
        header=given.header_timeout,
        body=given.body_timeout,
        idle=given.idle_timeout,
        connections=connections.possible(given.connections),
        address=given.address_connections,
    )
    config = uvicorn.Config(
        make_app(settings),
        http=connections.protocol(limits),
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=math.ceil(given.timeout) + GRACE,
    )
    # uvicorn raises the signal again after it has stopped: that it was asked to is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listening = _listen(given.host, given.port)
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"serving {given.models} at http://{shown}:{port}\n")
    uvicorn.Server(config).run([listening])


def _access(given: Arguments) -> tuple[str | None, tuple[str, ...]]:
    key = None if given.key == "none" else os.environ.get(API_KEY) or None
    origins = tuple(origin for origin in given.origins if origin != "none")
    if _is_loopback(given.host):
        return key, origins
    if key is None and given.key != "none":
        raise UserError(
            f"whoever reaches {given.host} could use the models. Set {API_KEY} to a key that clients must send, or let "
            "everybody in with --key none."
        )
    if not given.origins:
        raise UserError("name the web sites whose pages may ask this endpoint, or none: --origins none.")
    return key, origins


def _check_address(given: Arguments) -> None:
    if given.backend == "onnxruntime":
        if given.address is not None:
            raise UserError("--address is that of a TF Serving server. Add --backend tf-serving, or leave it out.")
        return
    try:
        parts = urlsplit(given.address if "://" in (given.address or "") else f"//{given.address or ''}")
        found = parts.scheme in ("", "http", "https") and parts.hostname and (parts.port or parts.scheme)
    except ValueError:
        found = None
    if not found:
        raise UserError(
            "--backend tf-serving needs the --address of a server: HOST:PORT for gRPC (TF Serving's own port is 8500), "
            f"http://HOST:PORT for REST (8501). Received: {given.address or 'none'}."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
    except OSError as error:
        raise UserError(
            f"cannot listen on {host} port {port}: {error.strerror}. Choose another with --port."
        ) from error


def _log(quiet: bool) -> None:
    """One JSON object a line on standard error, for requests and for what happens to versions."""
    from serving.logs import JsonFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # httpx2 tells of each request to TF Serving.
    for name in ("uvicorn", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # A warning for each form that is none: a client's mistake, which it is told.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    if quiet:
        logging.getLogger("serving.access").setLevel(logging.WARNING)

"""`highway serve`: the endpoint for a model repository, without TensorFlow and Keras."""

import faulthandler
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import tyro
from pydantic import Field

from pipelines.core.environment import API_KEY
from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen
from pipelines.core.parsing import parse
from serving.engine.crashes import Crashes

if TYPE_CHECKING:
    from serving.engine.settings import Limits
    from serving.http.app import OtherServer

# Seconds after SIGTERM to finish writing answers, beyond the time limit of a prediction.
GRACE = 5
DEFAULT = Path("models")
# Names under which this machine reaches itself.
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Arguments(Frozen):
    """Serves all models of a repository: image files, TF Serving's REST paths, Open Inference Protocol, web page."""

    models: tyro.conf.Positional[Path] = DEFAULT
    """The model repository, with one folder per model; without a folder `models`, the trained nets of the package."""
    backend: Literal["onnxruntime", "tf-serving"] = "onnxruntime"
    """What computes predictions: ONNX Runtime in this process, or a TF Serving server on the same repository."""
    address: str | None = None
    """Address of the TF Serving server: HOST:PORT for gRPC, http://HOST:PORT for REST, which is slower."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is every address of this machine."""
    port: Annotated[int, Field(ge=0, lt=65_536)] = 8501
    """Port to listen on; 0 is a free one."""
    grpc_port: Annotated[int, Field(ge=0, lt=65_536)] | None = None
    """Port for gRPC (Open Inference Protocol, TF Serving); 0 is a free one. Without it, there is no gRPC."""
    key: Literal["environment", "none"] = "environment"
    """Require clients to send the key in the environment variable HIGHWAY_API_KEY, if it is set; "none" admits everyone
    and must be given unless there is a key or the address is a loopback address."""
    key_file: Path | None = None
    """File with further keys, one per line as NAME KEY; several may have the same name. It is read again when it
    changes. The log has the names of the keys."""
    rate: Annotated[float, Field(gt=0)] | None = None
    """Requests per second that the keys of one name may send; more are refused with 429."""
    origins: tuple[str, ...] = ()
    """Other web sites whose pages may call this endpoint. Unless the address is a loopback address, it must be given,
    even if only as "none"."""
    hosts: tuple[str, ...] = ()
    """Names of this endpoint that a request's Host header may have. On a loopback address, those of the loopback
    interface are always accepted, and no others; on other addresses, any name is accepted unless some are given."""
    queue: Annotated[int, Field(ge=1)] = 1024
    """Images that may wait for each model version; more are refused with 503."""
    timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds after which a request is answered with 504."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """Batches computed in parallel, each on one core; default: one per core that this process may use, divided by the
    number of workers."""
    workers: Annotated[int, Field(ge=1)] = 1
    """Processes that share the port, for small nets, whose speed is limited by HTTP on one core. Each process loads all
    models and has limits of its own."""
    header_timeout: Annotated[float, Field(gt=0)] = 10.0
    """Seconds to send the head of a request."""
    body_timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds to send the body, plus one per 64 KiB, and to read the answer."""
    idle_timeout: Annotated[float, Field(gt=0)] = 75.0
    """Seconds that a connection may be idle between two requests; should exceed the timeout of a proxy in front."""
    connections: Annotated[int, Field(ge=1)] = 1024
    """Maximum number of connections; a new one replaces the one that was silent the longest, or is refused with 503."""
    address_connections: Annotated[int, Field(ge=1)] = 256
    """Maximum number of connections from one address, which may be a proxy."""
    drain: Annotated[float, Field(ge=0)] = 0.0
    """Seconds from SIGTERM until the port closes, in which requests are still answered but readiness is not reported,
    so that load balancers can take the endpoint out first."""
    trust: tuple[Path, ...] = ()
    """Serve only versions signed (`highway export --sign`) with one of these Ed25519 public keys, as PEM files."""
    quiet: bool = False
    """Do not log requests."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway serve`.

    Raises:
        UserError: a folder or key is missing, the address cannot be used, or access is not configured.
    """
    given = parse(Arguments, arguments, "highway serve", Arguments.__doc__ or "")
    if not given.trust and "--trust" in arguments:
        # An empty variable in a script must not admit every version.
        raise UserError("--trust needs a PEM file with an Ed25519 public key. Leave it out to serve unsigned versions.")
    key, origins = _access(given)
    _check_address(given)
    if given.models == DEFAULT and not given.models.exists() and str(DEFAULT) not in arguments:
        from serving import repository

        given = given.model_copy(update={"models": repository.pretrained()})
        sys.stderr.write(f"there is no folder {DEFAULT}: serving the nets that come with the package\n")
    _check_models(given.models)
    if given.workers > 1 and not hasattr(os, "fork"):
        raise UserError("--workers needs a system with fork. Start several endpoints behind a load balancer instead.")
    from serving import signature
    from serving.http.logs import configure_log
    from serving.keys import Keys, KeysError

    try:
        keys = Keys(key, given.key_file)
        trust = tuple(signature.public_key(path) for path in given.trust)
    except (signature.KeyFileError, KeysError) as error:
        raise UserError(str(error)) from error
    if given.rate and not keys:
        raise UserError(f"--rate is a limit for each key. Set {API_KEY}, or add --key-file.")
    configure_log(quiet=given.quiet)
    listening = _listen(given.host, given.port)
    reserved = None if given.grpc_port is None else _reserve(given.host, given.grpc_port)
    grpc_address = _shown(reserved) if reserved else None
    also = f" and grpc://{grpc_address}" if grpc_address else ""
    sys.stderr.write(f"serving {given.models} at http://{_shown(listening)}{also}\n")

    if given.workers == 1:
        _serve(given, key, origins, trust, listening, grpc_address=grpc_address)
        return
    from serving.http.workers import supervise

    crashes = Crashes(given.workers)

    def work() -> None:
        _serve(given, key, origins, trust, listening, grpc_address=grpc_address, crashes=crashes)

    sys.exit(supervise(work, given.workers, crashes))


def _serve(
    given: Arguments,
    key: str | None,
    origins: tuple[str, ...],
    trust: tuple[bytes, ...],
    listening: socket.socket,
    *,
    grpc_address: str | None,
    crashes: Crashes | None = None,
) -> None:
    """Serves in this process until SIGTERM."""
    from serving import memory
    from serving.engine.settings import Limits, Settings, cores
    from serving.http.app import make_app
    from serving.http.connections import possible
    from serving.http.server import run

    # A graph can crash ONNX Runtime; this writes a stack trace to the log.
    faulthandler.enable()
    memory.one_heap()
    share = max(cores() // given.workers, 1)
    settings = Settings(
        given.models,
        given.address,
        threads=given.threads or share,
        decoders=share,
        queue=given.queue,
        timeout=given.timeout,
        api_key=key,
        key_file=given.key_file,
        rate=given.rate,
        hosts=_hosts(given),
        origins=origins,
        trust=trust,
        crashes=crashes,
    )
    # HTTP and gRPC have as many each.
    ports = 1 if grpc_address is None else 2
    limits = Limits(
        header=given.header_timeout,
        body=given.body_timeout,
        idle=given.idle_timeout,
        connections=max(possible(ports * given.connections) // ports, 1),
        address=given.address_connections,
    )
    shutdown = given.timeout + GRACE
    app = make_app(settings, _grpc_server(grpc_address, limits, shutdown))
    run(app, listening, limits, settings, shutdown=shutdown, drain=given.drain)


def _grpc_server(grpc_address: str | None, limits: "Limits", grace: float) -> "OtherServer | None":
    if grpc_address is None:
        return None
    from serving.rpc.server import serve

    return partial(serve, address=grpc_address, limits=limits, grace=grace)


def _access(given: Arguments) -> tuple[str | None, tuple[str, ...]]:
    key = None if given.key == "none" else os.environ.get(API_KEY) or None
    origins = tuple(origin for origin in given.origins if origin != "none")
    if _is_loopback(given.host):
        return key, origins
    if key is None and given.key_file is None and given.key != "none":
        raise UserError(
            f"anyone who can reach {given.host} could use the models. Set {API_KEY} to a key that clients must send, "
            "name a file of keys with --key-file, or admit everyone with --key none."
        )
    if not given.origins:
        raise UserError("name the web sites whose pages may call this endpoint, or none: --origins none.")
    return key, origins


def _check_models(models: Path) -> None:
    from serving import manifest, repository

    if not models.is_dir():
        raise UserError(f"there is no folder {models}. Export a model with `highway export`, or name its folder.")
    if (models / manifest.NAME).exists():
        raise UserError(f"{models} is one version of a model. Name the folder of all models: {models.parent.parent}.")
    try:
        if any((models / str(version) / manifest.NAME).exists() for version in repository.versions(models)):
            raise UserError(f"{models} is one model. Name the folder of all models: {models.parent}.")
        found = repository.models(models)
    except OSError as error:
        # A volume may come back: the endpoint starts, and reports it.
        found, problem = [], f"{models} cannot be read: {error.strerror}."
    else:
        problem = f"{models} has no models yet. Export one with `highway export RUN --to {models / 'NAME'}`."
    if not found:
        sys.stderr.write(f"{problem} It is checked every second.\n")


def _hosts(given: Arguments) -> tuple[str, ...]:
    return (*LOOPBACK, given.host, *given.hosts) if _is_loopback(given.host) else given.hosts


def _check_address(given: Arguments) -> None:
    if given.backend == "onnxruntime":
        if given.address is not None:
            raise UserError("--address is for a TF Serving server. Add --backend tf-serving, or leave it out.")
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
    with _address_in_use(host, port, "--port"):
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )


def _reserve(host: str, port: int) -> socket.socket:
    from serving.rpc.ports import reserve

    if not hasattr(socket, "SO_REUSEPORT"):
        raise UserError("--grpc-port needs a system with SO_REUSEPORT, such as Linux or macOS.")
    with _address_in_use(host, port, "--grpc-port"):
        return reserve(host, port)


@contextmanager
def _address_in_use(host: str, port: int, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot listen on {host} port {port}: {error.strerror}. Choose another with {option}."
        ) from error


def _shown(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

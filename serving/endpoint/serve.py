"""Starts an endpoint: checks its files, takes its ports, and serves in this process or in workers."""

import errno
import faulthandler
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from serving import bucket, manifest, memory, repository, signature
from serving.endpoint.options import EndpointError, EndpointOptions
from serving.endpoint.workers import metrics_folder, supervise
from serving.engine.crashes import Crashes
from serving.engine.mirror import INTERVAL
from serving.engine.processes import ChildProcesses, EndedError
from serving.engine.readiness import AT_ONCE, HEALTH_ONLY, Readiness
from serving.keys import Keys, KeysError

if TYPE_CHECKING:
    from serving.engine.settings import Limits
    from serving.http.app import OtherServer

# Seconds that a bucket has to answer before the endpoint starts without it.
ANSWER = 20.0
# Seconds after SIGTERM to finish writing answers, beyond the time limit of a prediction.
GRACE = 5
# File descriptors for models, logs and listening sockets, and for each child process, which has three pipes while it
# starts.
FILES, CHILD = 64, 6
# Those that connections leave free, without child processes.
RESERVE = FILES + HEALTH_ONLY + AT_ONCE


def serve(options: EndpointOptions, say: Callable[[str], object] = print) -> int:
    """Serves a model repository until SIGTERM or SIGINT. Call it in the main thread of a separate process.

    With one worker, SIGTERM ends the process with status 0 once all requests have been answered.

    Args:
        options: options of the endpoint.
        say: takes lines for the user: the addresses, and problems with the repository.

    Returns:
        The exit status of the workers, if there are several.

    Raises:
        EndpointError: a folder, bucket or key is missing, an address cannot be used, or several workers find no
            temporary folder to write to.
    """
    url = str(options.models) if bucket.is_url(str(options.models)) else None
    if url is None:
        models = Path(options.models)
        check_models(models, say)
    else:
        models = check_bucket(url, say)
    if options.workers > 1 and not hasattr(os, "fork"):
        raise EndpointError(
            "--workers needs a system with fork. Start several endpoints behind a load balancer instead."
        )
    trust = _check_keys(options)
    with metrics_folder() if options.workers > 1 else nullcontext():
        listening = _listen(options.host, options.port)
        reserved = None if options.grpc_port is None else _reserve(options.host, options.grpc_port)
        grpc_address = _shown(reserved) if reserved else None
        also = f" and grpc://{grpc_address}" if grpc_address else ""
        say(f"serving {options.models} at http://{_shown(listening)}{also}")
        readiness = Readiness(options.workers)
        work = partial(
            _serve,
            options,
            models=models,
            url=url,
            trust=trust,
            listening=listening,
            grpc_address=grpc_address,
            readiness=readiness,
        )
        if options.workers == 1:
            work()
            return 0
        crashes = Crashes(options.workers)
        return supervise(partial(work, crashes=crashes), options.workers, crashes, readiness, listening)


def check_models(models: Path, say: Callable[[str], object]) -> None:
    """Checks that a folder is a model repository, which may still be empty.

    Args:
        models: the folder.
        say: takes a line for the user if there are no models yet.

    Raises:
        EndpointError: there is no such folder, or it is a file, a single model or a version.
    """
    if models.is_file():
        raise EndpointError(f"{models} is a file. Name the folder of all models, or leave it out for `models`.")
    if not models.is_dir():
        raise EndpointError(f"there is no folder {models}. Export a model with `highway export`, or name its folder.")
    if (models / manifest.NAME).exists():
        parent = models.parent.parent
        raise EndpointError(f"{models} is one version of a model. Name the folder of all models: {parent}.")
    try:
        if any((models / str(version) / manifest.NAME).exists() for version in repository.versions(models)):
            raise EndpointError(f"{models} is one model. Name the folder of all models: {models.parent}.")
        found = repository.models(models)
    except OSError as error:
        # A volume may come back: the endpoint starts, and reports it.
        found, problem = [], f"{models} cannot be read: {error.strerror}."
    else:
        problem = f"{models} has no models yet. Export one with `highway export RUN --to {models / 'NAME'}`."
    if not found:
        say(f"{problem} It is checked every second.")


def check_bucket(url: str, say: Callable[[str], object]) -> Path:
    """Checks that a URL is that of a model repository, which may still be empty, or out of reach for now.

    Args:
        url: the URL.
        say: takes a line for the user if there are no models yet, or only an earlier copy can be served for now.

    Returns:
        The folder that it is copied to.

    Raises:
        EndpointError: it cannot be served: a package, the bucket or credentials are missing; or it is a single model.
    """
    # Packages for buckets start threads, which must not be forked.
    children = ChildProcesses(seconds=ANSWER)
    try:
        folder = bucket.copy_folder(url)
        notice = children.call(bucket.check, url)
    except bucket.BucketError as error:
        raise EndpointError(str(error)) from error
    except EndedError:
        notice = f"{url} has not answered within {ANSWER:g} s."
    finally:
        children.close()
    if notice:
        say(f"{notice} It is checked every {INTERVAL:g} s.")
    return folder


def _check_keys(options: EndpointOptions) -> tuple[bytes, ...]:
    """Checks the keys of clients, and returns the public keys of `trust`."""
    try:
        keys = Keys(options.key, options.key_file)
        trust = tuple(signature.public_key(path) for path in options.trust)
    except (signature.KeyFileError, KeysError) as error:
        raise EndpointError(str(error)) from error
    if options.rate and not keys:
        raise EndpointError("--rate is a limit for each key. Set HIGHWAY_API_KEY, or add --key-file.")
    return trust


def _serve(
    options: EndpointOptions,
    *,
    models: Path,
    url: str | None,
    trust: tuple[bytes, ...],
    listening: socket.socket,
    grpc_address: str | None,
    readiness: Readiness,
    crashes: Crashes | None = None,
) -> None:
    """Serves in this process until SIGTERM."""
    # Imported here: the supervisor must fork without them, and the metrics read the environment on import.
    from serving.engine.settings import Limits, Settings, cores
    from serving.http.app import make_app
    from serving.http.server import run

    # A graph can crash ONNX Runtime; this writes a stack trace to the log.
    faulthandler.enable()
    memory.one_heap()
    share = max(cores() // options.workers, 1)
    settings = Settings(
        models,
        options.address,
        threads=options.threads or share,
        decoders=share,
        queue=options.queue,
        timeout=options.timeout,
        api_key=options.key,
        key_file=options.key_file,
        rate=options.rate,
        hosts=options.accepted_hosts,
        origins=options.origins or (),
        trust=trust,
        crashes=crashes,
        readiness=readiness,
        bucket=url,
    )
    # HTTP and gRPC have as many each.
    ports, children = 1 if grpc_address is None else 2, settings.threads + settings.decoders
    limits = Limits(
        header=options.header_timeout,
        body=options.body_timeout,
        idle=options.idle_timeout,
        connections=max(possible(ports * options.connections, children) // ports, 1),
        address=options.address_connections,
    )
    shutdown = options.timeout + GRACE
    app = make_app(settings, _grpc_server(grpc_address, limits, shutdown))
    run(app, listening, limits, settings, shutdown=shutdown, drain=options.drain)


def possible(connections: int, children: int) -> int:
    """Raises the limit of open files as far as necessary and possible.

    Args:
        connections: desired number.
        children: maximum number of child processes for requests.

    Returns:
        Possible number of connections.

    Example:
        Limits(connections=possible(10_000, children=4))
    """
    try:
        import resource
    except ImportError:
        # Windows has no such limit.
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = RESERVE + CHILD * children
    wanted = connections + reserve
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(min(connections, soft - reserve), 1)


def _grpc_server(grpc_address: str | None, limits: "Limits", grace: float) -> "OtherServer | None":
    if grpc_address is None:
        return None
    from serving.rpc import server

    return partial(server.serve, address=grpc_address, limits=limits, grace=grace)


def _listen(host: str, port: int) -> socket.socket:
    with _address_in_use(host, port, "--port"):
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )


def _reserve(host: str, port: int) -> socket.socket:
    if not hasattr(socket, "SO_REUSEPORT"):
        raise EndpointError("--grpc-port needs a system with SO_REUSEPORT, such as Linux or macOS.")
    with _address_in_use(host, port, "--grpc-port"):
        return reserve(host, port)


def reserve(host: str, port: int) -> socket.socket:
    """Reserves a port for the gRPC servers of this process and its children.

    gRPC binds its port itself, once per worker, with SO_REUSEPORT. That alone would silently share a port with another
    endpoint of the same user.

    Args:
        host: address to listen on.
        port: port; 0 is a free one.

    Returns:
        A bound socket, which receives no connections; keep it open.

    Raises:
        OSError: the address cannot be used, or is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without SO_REUSEPORT, so that a port in use is noticed.
    with socket.create_server((host, port), family=family) as found:
        port = found.getsockname()[1]
    reserved = socket.socket(family, socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, port))
    except OSError:
        reserved.close()
        raise
    return reserved


@contextmanager
def _address_in_use(host: str, port: int, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Otherwise this machine does not have the address, or there is no such name.
        option = option if error.errno in {errno.EADDRINUSE, errno.EACCES} else "--host"
        # Python adds the address.
        why = str(error.strerror).partition(" (while attempting")[0]
        raise EndpointError(f"cannot listen on {host} port {port}: {why}. Choose another with {option}.") from error


def _shown(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

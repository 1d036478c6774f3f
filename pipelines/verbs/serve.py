"""`highway serve`: the endpoint for a model repository, without TensorFlow and Keras."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from pydantic import Field

from pipelines.core.environment import API_KEY
from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen
from pipelines.core.parsing import parse

if TYPE_CHECKING:
    from serving.endpoint.options import EndpointOptions

DEFAULT = Path("models")


class Arguments(Frozen):
    """Serves all models of a repository: image files, TF Serving's REST paths, Open Inference Protocol, web page."""

    models: tyro.conf.Positional[str] = str(DEFAULT)
    """The model repository, with one folder per model, or its URL in a bucket, such as s3://BUCKET/models; without a
    folder `models`, the trained nets of the package."""
    backend: Literal["onnxruntime", "tf-serving"] = "onnxruntime"
    """Backend of the predictions: ONNX Runtime in this process, or a TF Serving server on the same repository."""
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
    models and has its own limits."""
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
        UserError: a folder, bucket or key is missing, the address cannot be used, or access is not configured.
    """
    given = parse(Arguments, arguments, "highway serve", Arguments.__doc__ or "")
    # An empty variable in a script must not admit every version; the path of an empty text is the current folder.
    if (not given.trust and "--trust" in arguments) or Path() in given.trust:
        raise UserError("--trust needs a PEM file with an Ed25519 public key. Leave it out to serve unsigned versions.")
    from serving import package
    from serving.endpoint import serve
    from serving.endpoint.options import EndpointError
    from serving.http.logs import configure_log

    try:
        options = _options(given)
        if given.models == str(DEFAULT) and not DEFAULT.exists() and str(DEFAULT) not in arguments:
            options = replace(options, models=package.pretrained())
            _say(f"there is no folder {DEFAULT}: serving the nets that come with the package")
        configure_log(quiet=given.quiet)
        status = serve.serve(options, _say)
    except EndpointError as error:
        raise UserError(str(error)) from error
    if status:
        sys.exit(status)


def _options(given: Arguments) -> "EndpointOptions":
    from serving.bucket import is_url
    from serving.endpoint.options import EndpointOptions

    same = given.model_dump(exclude={"models", "key", "origins", "quiet"})
    return EndpointOptions(
        **same,
        # The path of an empty text would be the current folder.
        models=Path(given.models) if given.models and not is_url(given.models) else given.models,
        key=None if given.key == "none" else os.environ.get(API_KEY) or None,
        admit_everyone=given.key == "none",
        origins=tuple(origin for origin in given.origins if origin != "none") if given.origins else None,
    )


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")

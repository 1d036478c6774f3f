"""Options of an endpoint, checked when they are made. Imports nothing large, because workers are forked afterwards."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from serving.bucket import is_url
from serving.errors import ServingError

# Names under which this machine reaches itself.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# A site as browsers send it, and a name in a Host header without its port; IPv6 has colons.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([^\s/:?#@\[\]A-Z]+|\[[0-9a-f:.]+\])(:[0-9]+)?")
_HOST = re.compile(r"[^\s/:?#@\[\]]+|[0-9A-Fa-f:.]+")


class EndpointError(ServingError):
    """An option of an endpoint is invalid, or a file, folder or port that it names cannot be used."""


@dataclass(frozen=True, kw_only=True)
class EndpointOptions:
    """Options of an endpoint. `highway serve` has them too, and its help says more about each.

    Raises:
        EndpointError: they leave open who may use the endpoint, or name something that cannot be served, no site or
            machine, or no server to use as backend.

    Example:
        EndpointOptions(models=Path("models"), host="0.0.0.0", key="secret", origins=())
    """

    models: Path | str
    """The model repository: a folder, or the URL of one in a bucket."""
    backend: Literal["onnxruntime", "tf-serving"] = "onnxruntime"
    """Backend of the predictions: ONNX Runtime in this process, or a TF Serving server."""
    address: str | None = None
    """Address of the TF Serving server."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8501
    """Port to listen on; 0 is a free one."""
    grpc_port: int | None = None
    """Port for gRPC; 0 is a free one. None is no gRPC."""
    key: str | None = None
    """Key that clients must send."""
    key_file: Path | None = None
    """File with further keys."""
    admit_everyone: bool = False
    """Whether to admit everyone if there are no keys; must be stated unless the address is a loopback address."""
    rate: float | None = None
    """Requests per second that the keys of one name may send; None is no limit."""
    origins: tuple[str, ...] | None = None
    """Other web sites whose pages may call the endpoint; must be given unless the address is a loopback address."""
    hosts: tuple[str, ...] = ()
    """Names by which requests may address the endpoint; on a loopback address, in addition to those of this machine."""
    queue: int = 1024
    """Images that may wait for each model version."""
    timeout: float = 30.0
    """Seconds after which a request is answered with 504."""
    threads: int | None = None
    """Batches computed in parallel; None is one per core, divided by the number of workers."""
    workers: int = 1
    """Processes that share the port."""
    header_timeout: float = 10.0
    """Seconds to send the head of a request."""
    body_timeout: float = 30.0
    """Seconds to send the body, plus one per 64 KiB, and to read the answer."""
    idle_timeout: float = 75.0
    """Seconds that a connection may be idle between two requests."""
    connections: int = 1024
    """Maximum number of connections."""
    address_connections: int = 256
    """Maximum number of connections from one address."""
    drain: float = 0.0
    """Seconds from SIGTERM until the port closes."""
    trust: tuple[Path, ...] = ()
    """Ed25519 public keys, one of which must have signed each version; without any, unsigned versions are served."""

    def __post_init__(self) -> None:
        """Checks what is served, who may use the endpoint, and the address of its backend."""
        self._check_models()
        self._check_ports()
        self._check_names()
        self._check_access()
        self._check_address()

    @property
    def accepted_hosts(self) -> tuple[str, ...]:
        """Names that the Host header of a request may have; empty for any."""
        return (*LOOPBACK, self.host, *self.hosts) if self._is_local() else self.hosts

    def _is_local(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def _check_models(self) -> None:
        given = str(self.models)
        if not given:
            raise EndpointError("the model repository has an empty name. Name a folder, or leave it out for `models`.")
        if given.lower().startswith(("http://", "https://")):
            raise EndpointError(
                f"{given} is a web address, not a bucket. Name a folder, or a bucket, such as s3://BUCKET/models or "
                "gs://BUCKET/models."
            )

    def _check_ports(self) -> None:
        if self.port and self.port == self.grpc_port:
            raise EndpointError(
                f"--port and --grpc-port are both {self.port}, but HTTP and gRPC need a port each. Choose another for "
                "one of them."
            )

    def _check_names(self) -> None:
        for origin in self.origins or ():
            if not (origin == "*" or _ORIGIN.fullmatch(origin)):
                raise EndpointError(
                    f"--origins has {origin!r}, which no browser sends. Expected a scheme, a name in lower case and "
                    "perhaps a port, such as https://example.org or http://localhost:3000."
                )
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise EndpointError(
                    f"--hosts has {host!r}, which is no name of a machine. Expected one without scheme and port, such "
                    "as digits.example.org."
                )

    def _check_access(self) -> None:
        if self._is_local():
            return
        if self.key is None and self.key_file is None and not self.admit_everyone:
            raise EndpointError(
                f"anyone who can reach {self.host} could use the models. Set HIGHWAY_API_KEY to a key that clients "
                "must send, name a file of keys with --key-file, or admit everyone with --key none."
            )
        if self.origins is None:
            raise EndpointError("name the web sites whose pages may call this endpoint, or none: --origins none.")

    def _check_address(self) -> None:
        if self.backend == "onnxruntime":
            if self.address is not None:
                raise EndpointError("--address is for a TF Serving server. Add --backend tf-serving, or leave it out.")
            return
        if is_url(str(self.models)):
            raise EndpointError(
                f"TF Serving would have to read {self.models} too. Copy the bucket to a folder that both see, for "
                "example with `aws s3 sync`, and name that folder."
            )
        given = self.address or ""
        try:
            parts = urlsplit(given if "://" in given else f"//{given}")
            found = parts.scheme in ("", "http", "https") and parts.hostname and (parts.port or parts.scheme)
        except ValueError:
            found = None
        if not found:
            raise EndpointError(
                "--backend tf-serving needs the --address of a server: HOST:PORT for gRPC (TF Serving's own port is "
                f"8500), http://HOST:PORT for REST (8501). Received: {given or 'none'}."
            )

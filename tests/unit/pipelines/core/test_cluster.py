"""The connection to a cluster, without Ray: a gRPC server stands in for the head."""

import errno
import socket
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from pipelines.core import cluster
from pipelines.core.errors import UserError


@contextmanager
def head(token):
    """A head that asks for a token, or for none; yields its address."""

    class Answers(grpc.GenericRpcHandler):
        def service(self, details):
            sent = dict(details.invocation_metadata).get("authorization")
            refused = token is not None and sent != f"Bearer {token}"

            def answer(_, context):
                if refused:
                    context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
                return b""

            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(ThreadPoolExecutor(1), handlers=[Answers()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@pytest.fixture
def ray(monkeypatch, tmp_path):
    """A module that records the addresses to which it connects."""
    module = types.ModuleType("ray")
    module.addresses = []
    module.error = None
    module.exceptions = types.SimpleNamespace(RayError=type("RayError", (Exception,), {}))

    def init(address, **_):
        module.addresses.append(address)
        if module.error:
            raise module.error

    module.init, module.shutdown = init, lambda: None
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setattr(cluster, "_head", lambda address: address)
    monkeypatch.setattr(cluster, "_runs_ray", lambda: True)
    for name in (*cluster.SETTINGS, "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        # Set first, so that what the code sets is undone.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return module


def test_ray_is_named_if_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"needs Ray on every node: install highway-keras\[cluster\] there"):
        cluster.connect("127.0.0.1:1")


def test_a_cluster_on_loopback_needs_no_token(ray):
    with head(None) as address:
        assert cluster.connect(address) is ray
    assert ray.addresses == [address]


def test_a_cluster_without_a_token_is_refused_elsewhere(ray, monkeypatch):
    monkeypatch.setattr(cluster, "_is_loopback", lambda _: False)
    with head(None) as address, pytest.raises(UserError, match=r"asks for no token.*RAY_AUTH_MODE=token"):
        cluster.connect(address)
    assert ray.addresses == []


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1:6379", True), ("[::1]:6379", True), ("10.0.0.1:6379", False), ("head:6379", False)],
)
def test_addresses_of_the_loopback_interface(address, loopback):
    assert cluster._is_loopback(address) == loopback


@pytest.mark.parametrize("where", ["variable", "file", "home"])
def test_the_token_is_found_where_ray_looks(ray, monkeypatch, tmp_path, where):
    if where == "variable":
        monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    else:
        path = tmp_path / ("token" if where == "file" else ".ray/auth_token")
        path.parent.mkdir(exist_ok=True)
        path.write_text("secret\n")
        if where == "file":
            monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    with head("secret") as address:
        cluster.connect(address)
    assert ray.addresses == [address]
    assert cluster.os.environ["RAY_AUTH_MODE"] == "token"


@pytest.mark.parametrize(
    ("token", "message"), [(None, "there is none on this machine"), ("wrong", "does not accept that of this machine")]
)
def test_a_driver_without_the_token_is_refused(ray, monkeypatch, token, message):
    if token:
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    with head("secret") as address, pytest.raises(UserError, match=f"asks for a token, and {message}"):
        cluster.connect(address)
    assert ray.addresses == []


def test_a_token_that_no_request_can_carry_is_refused_with_its_place(ray, tmp_path):
    place = tmp_path / ".ray" / "auth_token"
    place.parent.mkdir()
    for content in (b"two\nlines\n", b"caf\xe9\n", "caf\u00e9\n".encode()):
        place.write_bytes(content)
        with head("secret") as address, pytest.raises(UserError, match=f"{place} must hold a token, one line"):
            cluster.connect(address)
    assert ray.addresses == []


def test_a_token_that_cannot_be_read_is_named(ray, monkeypatch, tmp_path):
    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(cluster.Path, "read_text", denied)
    place = tmp_path / ".ray" / "auth_token"
    with head("secret") as address, pytest.raises(UserError, match=f"{place} .* cannot be read .Permission denied"):
        cluster.connect(address)


def test_a_mode_in_which_ray_sends_no_token_is_refused(ray, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with head("secret") as address, pytest.raises(UserError, match=r"Set RAY_AUTH_MODE to token\. Received: disabled"):
        cluster.connect(address)
    assert ray.addresses == []


def test_an_address_where_nothing_listens_is_refused(ray):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(UserError, match=f"no Ray cluster answers at 127.0.0.1:{port}"):
        cluster.connect(f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", [":", ":6379", "10.0.0.1", "10.0.0.1:", "head:port", "::1:6379", "", "ray://h:1"])
def test_an_address_of_another_form_is_refused_before_ray_is_asked(monkeypatch, address):
    monkeypatch.setitem(sys.modules, "ray._private", None)
    with pytest.raises(UserError, match=f"--cluster must be HOST:PORT or auto. Received: {address}"):
        cluster._head(address)


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379", "head-1.example_net:6379", "[fd00::1]:6379"])
def test_ray_is_asked_for_the_head(monkeypatch, address):
    services = types.SimpleNamespace(canonicalize_bootstrap_address=lambda given: f"canonical {given}")
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray._private", types.SimpleNamespace(services=services))
    assert cluster._head(address) == f"canonical {address}"


def test_a_head_that_ceases_to_answer_is_reported_once(ray, monkeypatch):
    monkeypatch.setattr(cluster, "PERIOD", 0.01)
    monkeypatch.setattr(cluster, "SILENT", 0.2)
    reports, reported = [], threading.Event()

    def report(line):
        reports.append(line)
        reported.set()

    with head(None) as address:
        end = cluster.watch(address, report)
        assert not reported.wait(0.5)
    try:
        assert reported.wait(30)
        time.sleep(0.5)
    finally:
        end()
    (line,) = reports
    assert line.startswith(f"the head of the cluster at {address} does not answer any more; Ray ends this command")


def test_reasons_of_ray_are_passed_on(ray):
    ray.error = ConnectionError("Failed to connect")
    ray.error.__cause__ = RuntimeError("Version mismatch:\n  Ray 2.59")
    with (
        head(None) as address,
        pytest.raises(UserError, match=r"cannot be used: .*connect Version mismatch: Ray 2\.59"),
    ):
        cluster.connect(address)


def test_a_machine_outside_of_the_cluster_is_named(ray):
    ray.error = RuntimeError("No node info found matching attributes: '' when trying to resolve node")
    with head(None) as address, pytest.raises(UserError, match=f"ray start --address={address}"):
        cluster.connect(address)


def test_a_machine_without_ray_is_named_at_once(ray, monkeypatch):
    monkeypatch.setattr(cluster, "_runs_ray", lambda: False)
    with head(None) as address, pytest.raises(UserError, match=f"ray start --address={address}"):
        cluster.connect(address)
    assert ray.addresses == []


def test_ray_sends_no_statistics_and_leaves_the_signals_alone(ray):
    before = cluster.signal.getsignal(cluster.signal.SIGTERM)
    init = ray.init

    def with_a_handler(address, **options):
        cluster.signal.signal(cluster.signal.SIGTERM, lambda *_: None)
        init(address, **options)

    ray.init = with_a_handler
    with head(None) as address:
        cluster.connect(address)
    assert cluster.os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert cluster.signal.getsignal(cluster.signal.SIGTERM) == before

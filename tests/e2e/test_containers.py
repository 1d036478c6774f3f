"""Builds and runs the images of the Dockerfile.

HIGHWAY_CONTAINER names a program that replaces `docker` in two commands:
    build --target TARGET -t NAME --build-arg NAME=VALUE FOLDER
    run [-v HOST:CONTAINER[:ro]] [-e NAME=VALUE] NAME [ARGUMENT...]    host network, read-only root but for /tmp
Without it, `container` on the PATH is used. The tests look into running containers through /proc, as root, and into
images with Buildah or Docker, if one of them holds the images.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest

from tests.dockerfile import has_ipv6, words

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
PROGRAM = os.environ.get("HIGHWAY_CONTAINER") or shutil.which("container")
RAW = {"content-type": "application/octet-stream"}
# As `make images` gives them.
LABELS = {"VERSION": "1.2.3", "REVISION": "0" * 40, "CREATED": "2030-01-01T00:00:00+00:00"}

pytestmark = pytest.mark.skipif(
    not PROGRAM,
    reason="no program to build and run images: HIGHWAY_CONTAINER is not set, and `container` is not on the PATH",
)


def build(target):
    name = f"highway-test-{target}"
    # By its tag: a stand-in for the base image has another digest.
    given = {"PYTHON_IMAGE": "python:3.13-slim", **LABELS}
    arguments = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
    subprocess.run(
        [PROGRAM, "build", "--target", target, "-t", name, *arguments, str(ROOT)], check=True, capture_output=True
    )
    return name


def configuration(image):
    """Returns what an image says about itself."""
    commands = (["buildah", "inspect", "--type", "image", image], ["docker", "image", "inspect", image])
    for command in commands:
        if shutil.which(command[0]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                found = json.loads(done.stdout)
                return found[0]["Config"] if isinstance(found, list) else found["Docker"]["config"]
    pytest.skip("neither Buildah nor Docker holds the image")


@pytest.fixture(scope="module")
def endpoint():
    return build("endpoint")


@pytest.fixture(scope="module")
def train():
    return build("train")


class Container:
    """A running endpoint."""

    def __init__(self, image, models, host=None):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://{f'[{host}]' if host else '127.0.0.1'}:{self.port}"
        # The origins of the image's own command stay.
        words = ["-v", f"{models}:/models:ro", image, "--port", str(self.port), "--key", "none"]
        words += ["--host", host] if host else []
        self.process = subprocess.Popen([PROGRAM, "run", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        end = time.monotonic() + 60
        while not self._answers():
            assert time.monotonic() < end, "the endpoint did not start"
            assert self.process.poll() is None, self.ended()
            time.sleep(0.02)
        self.pid = self._find_pid()

    def _answers(self):
        try:
            return httpx.get(f"{self.url}/v2/health/ready").status_code == 200
        except httpx.TransportError:
            return False

    def _find_pid(self):
        """Returns the process id of `highway serve` outside of the container."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            words = path.read_bytes().split(b"\0")
            if words[0].startswith(b"/opt/highway/") and str(self.port).encode() in words:
                return int(path.parent.name)
        raise AssertionError("there is no process of the endpoint")

    def stop(self):
        """Sends SIGTERM, as every container engine does."""
        os.kill(self.pid, signal.SIGTERM)

    def ended(self):
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said.decode()


@contextmanager
def started(image, host=None):
    made = Container(image, GOLDEN / "models", host)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.stop()
            made.ended()


@pytest.fixture(scope="module")
def running(endpoint):
    """An endpoint for tests that do not stop it."""
    with started(endpoint) as made:
        yield made


@pytest.fixture
def stopping(endpoint):
    """An endpoint for one test."""
    with started(endpoint) as made:
        yield made


def test_the_endpoint_serves_a_mounted_repository(running):
    images, expected = np.load(GOLDEN / "images.npy"), np.load(GOLDEN / "probabilities.npy")
    body = {"inputs": images.tolist()}
    found = httpx.post(f"{running.url}/v1/models/tiny:predict", json=body).json()["outputs"]["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert "<canvas" in httpx.get(running.url, headers={"accept": "text/html"}).text
    # Larger than the part of a form that is parsed in memory.
    large = [("picture", ("noise.png", os.urandom(3_000_000)))]
    answer = httpx.post(f"{running.url}/predict/tiny", files=large)
    assert (answer.status_code, "is not an image" in answer.json()["error"]) == (400, True)


def test_the_endpoint_runs_unprivileged_on_a_read_only_root_without_tensorflow(running):
    process = Path(f"/proc/{running.pid}")
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    assert status["Uid"].split() == ["10001"] * 4
    assert int(status["CapEff"], 16) == 0
    (root,) = [line.split() for line in (process / "mountinfo").read_text().splitlines() if line.split()[4] == "/"]
    assert root[5].split(",")[0] == "ro"
    (packages,) = (process / "root/opt/highway/lib").glob("python3*/site-packages")
    names = {path.name.partition("-")[0].lower() for path in packages.iterdir()}
    # The wheel's name of `serving`.
    assert {"highway_keras_serving", "onnxruntime", "fastapi"} <= names
    assert names.isdisjoint({"tensorflow", "tensorflow_cpu", "keras", "jax", "torch", "pip", "setuptools", "pytest"})
    assert not list(packages.rglob("tests"))


@pytest.mark.parametrize("name", ["endpoint", "train"])
def test_an_image_has_its_labels_and_its_health_check(request, name):
    found = configuration(request.getfixturevalue(name))
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in found["Labels"].items()}
    assert labels.items() >= {
        "title": f"highway-{name}", "licenses": "Apache-2.0", "base.name": "python:3.13-slim",
        "version": LABELS["VERSION"], "revision": LABELS["REVISION"], "created": LABELS["CREATED"],
    }.items()  # fmt: skip
    assert found["User"] == "10001"
    if name == "endpoint":
        assert found["Healthcheck"]["Test"] == ["CMD", *words("endpoint", "HEALTHCHECK")]


def health_status(running, changed=lambda script: script):
    """Returns the status of the health check inside a container."""
    program, option, script = words("endpoint", "HEALTHCHECK")
    inside = ["chroot", f"/proc/{running.pid}/root", program, option, changed(script)]
    return subprocess.run(inside, capture_output=True, timeout=30, check=False).returncode


def test_the_health_check_runs_in_the_image(running):
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    # The port of the running endpoint, which its command names.
    assert running.port != 8501
    assert health_status(running) == 0

    def elsewhere(script):
        return script.replace("8501", str(closed)).replace("/proc/1/cmdline", "/dev/null")

    assert health_status(running, elsewhere) == 1


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_the_health_check_asks_the_address_of_the_command(endpoint):
    with started(endpoint, "::1") as running:
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{running.port}/v2/health/live")
        assert health_status(running) == 0
        assert health_status(running, lambda script: script.replace("/dev/tcp/$host", "/dev/tcp/127.0.0.1")) == 1


def test_the_bill_of_materials_lists_every_package_of_the_image(running):
    inside = Path("/proc", str(running.pid), "root", "opt", "highway")
    bill = json.loads((inside / "sbom.cdx.json").read_text())
    (packages,) = inside.glob("lib/python3*/site-packages")
    installed = {(one.name, one.version) for one in metadata.distributions(path=[str(packages)])}
    assert bill["bomFormat"] == "CycloneDX"
    assert {(one["name"], one["version"]) for one in bill["components"]} == installed
    assert len(installed) > 50
    # A few packages do not say what their licence is.
    assert sum("licenses" in one for one in bill["components"]) > 0.9 * len(installed)


def test_pages_of_other_sites_may_not_read_answers(running):
    headers = {"origin": "https://a.example", "access-control-request-method": "POST"}
    for method in ("GET", "OPTIONS"):
        answer = httpx.request(method, f"{running.url}/models", headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_requests_in_flight_at_sigterm_are_answered(stopping):
    """Sends half of each body before the signal and the rest after it."""
    image = np.load(GOLDEN / "images.npy")[:1].tobytes()
    head = f"POST /predict/tiny HTTP/1.1\r\nHost: a\r\nContent-Type: {RAW['content-type']}\r\n"
    head += f"Content-Length: {len(image)}\r\n\r\n"
    sockets = [socket.create_connection(("127.0.0.1", stopping.port)) for _ in range(20)]
    for one in sockets:
        one.sendall(head.encode() + image[:100])
    end = time.monotonic() + 30
    # This request is in flight too.
    while "highway_requests_in_flight 21.0" not in httpx.get(f"{stopping.url}/metrics").text:
        assert time.monotonic() < end
    stopping.stop()
    while True:
        try:
            socket.create_connection(("127.0.0.1", stopping.port)).close()
        except ConnectionRefusedError:
            break
        assert time.monotonic() < end
    for one in sockets:
        one.sendall(image[100:])
        with one, one.makefile("rb") as answer:
            assert answer.readline().split()[1] == b"200"
            body = answer.read().partition(b"\r\n\r\n")[2]
            assert json.loads(body)["predictions"]
    status, said = stopping.ended()
    assert status == 0, said
    assert "Traceback" not in said


def test_the_endpoint_requires_a_key_or_the_decision_against_one(endpoint):
    done = subprocess.run([PROGRAM, "run", endpoint], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Set HIGHWAY_API_KEY" in done.stderr


def test_containers_train_export_and_serve(train, endpoint, tmp_path):
    """Goes from raw data to predictions in containers only."""
    for name in ("work", "data"):
        (tmp_path / name).mkdir()
        # User 10001 writes here.
        (tmp_path / name).chmod(0o777)

    def highway(*words):
        mounts = ["-v", f"{tmp_path}/work:/work", "-v", f"{tmp_path}/data:/data"]
        done = subprocess.run([PROGRAM, "run", *mounts, train, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    highway("train", "demo", "--epochs", "1")
    highway("export", "runs/demo")
    highway("release", "models/demo")
    assert 'name: "demo"' in (tmp_path / "work" / "models" / "models.config").read_text()
    running = Container(endpoint, tmp_path / "work" / "models")
    try:
        with np.load(tmp_path / "work" / "models" / "demo" / "1" / "parity.npz") as kept:
            images, expected = kept["images"][:5], kept["probabilities"][:5]
        found = httpx.post(f"{running.url}/v1/models/demo:predict", json={"inputs": images.tolist()}).json()
        np.testing.assert_allclose(found["outputs"]["probabilities"], expected, atol=1e-4)
    finally:
        running.stop()
        assert running.ended()[0] == 0

"""The images of the Dockerfile, built and run for real.

HIGHWAY_CONTAINER names a program that does what `docker` does, with these two verbs:
    build --target TARGET -t NAME FOLDER
    run [-v HOST:CONTAINER[:ro]] [-e NAME=VALUE] NAME [ARGUMENT...]    host network, read-only root but for /tmp
One called `container` in the path is found too. What an image is like inside is read through /proc, as root.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
PROGRAM = os.environ.get("HIGHWAY_CONTAINER") or shutil.which("container")
RAW = {"content-type": "application/octet-stream"}

pytestmark = pytest.mark.skipif(
    not PROGRAM,
    reason="nothing builds and runs images here: HIGHWAY_CONTAINER is not set, and no `container` in the path",
)


def build(target):
    name = f"highway-test-{target}"
    subprocess.run([PROGRAM, "build", "--target", target, "-t", name, str(ROOT)], check=True, capture_output=True)
    return name


@pytest.fixture(scope="module")
def endpoint():
    return build("endpoint")


@pytest.fixture(scope="module")
def train():
    return build("train")


class Container:
    """A running endpoint."""

    def __init__(self, image, models):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        words = ["-v", f"{models}:/models:ro", image, "--port", str(self.port), "--key", "none", "--origins", "none"]
        self.process = subprocess.Popen([PROGRAM, "run", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        end = time.monotonic() + 60
        while not self._answers():
            assert time.monotonic() < end, "the endpoint does not come up"
            assert self.process.poll() is None, self.ended()
            time.sleep(0.02)
        self.pid = self._inside()

    def _answers(self):
        try:
            return httpx.get(f"{self.url}/v2/health/ready").status_code == 200
        except httpx.TransportError:
            return False

    def _inside(self):
        """Process of `highway serve`, as this machine numbers it."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            words = path.read_bytes().split(b"\0")
            if words[0].startswith(b"/opt/highway/") and str(self.port).encode() in words:
                return int(path.parent.name)
        raise AssertionError("its process is not found")

    def stop(self):
        """SIGTERM, as every container engine sends it."""
        os.kill(self.pid, signal.SIGTERM)

    def ended(self):
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said.decode()


@pytest.fixture
def running(endpoint):
    made = Container(endpoint, GOLDEN / "models")
    yield made
    if made.process.poll() is None:
        made.stop()
        made.ended()


def test_it_answers_from_a_mounted_repository(running):
    images, expected = np.load(GOLDEN / "images.npy"), np.load(GOLDEN / "probabilities.npy")
    body = {"inputs": images.tolist()}
    found = httpx.post(f"{running.url}/v1/models/tiny:predict", json=body).json()["outputs"]["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert "<canvas" in httpx.get(running.url).text
    # More than is kept in memory while a form is read.
    large = [("picture", ("noise.png", os.urandom(3_000_000)))]
    answer = httpx.post(f"{running.url}/predict/tiny", files=large)
    assert (answer.status_code, "is no picture" in answer.json()["error"]) == (400, True)


def test_it_is_an_unprivileged_user_on_a_read_only_root_without_tensorflow(running):
    process = Path(f"/proc/{running.pid}")
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    assert status["Uid"].split() == ["10001"] * 4
    assert int(status["CapEff"], 16) == 0
    (root,) = [line.split() for line in (process / "mountinfo").read_text().splitlines() if line.split()[4] == "/"]
    assert root[5].split(",")[0] == "ro"
    (packages,) = (process / "root/opt/highway/lib").glob("python3*/site-packages")
    names = {path.name.partition("-")[0].lower() for path in packages.iterdir()}
    assert {"serving", "onnxruntime", "fastapi"} <= names
    assert names.isdisjoint({"tensorflow", "tensorflow_cpu", "keras", "jax", "torch", "pip", "setuptools", "pytest"})
    assert not list(packages.rglob("tests"))


def test_requests_in_flight_at_sigterm_are_answered(running):
    """Half of each body is sent before the signal, and the rest after it."""
    image = np.load(GOLDEN / "images.npy")[:1].tobytes()
    head = f"POST /predict/tiny HTTP/1.1\r\nHost: a\r\nContent-Type: {RAW['content-type']}\r\n"
    head += f"Content-Length: {len(image)}\r\n\r\n"
    sockets = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(20)]
    for one in sockets:
        one.sendall(head.encode() + image[:100])
    end = time.monotonic() + 30
    # This request is in flight too.
    while "highway_requests_in_flight 21.0" not in httpx.get(f"{running.url}/metrics").text:
        assert time.monotonic() < end
    running.stop()
    while True:
        try:
            socket.create_connection(("127.0.0.1", running.port)).close()
        except ConnectionRefusedError:
            break
        assert time.monotonic() < end
    for one in sockets:
        one.sendall(image[100:])
        with one, one.makefile("rb") as answer:
            assert answer.readline().split()[1] == b"200"
            body = answer.read().partition(b"\r\n\r\n")[2]
            assert json.loads(body)["predictions"]
    status, said = running.ended()
    assert status == 0, said
    assert "Traceback" not in said


def test_it_asks_who_may_use_it(endpoint):
    done = subprocess.run([PROGRAM, "run", endpoint], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Set HIGHWAY_API_KEY" in done.stderr


def test_training_exporting_and_serving_in_containers(train, endpoint, tmp_path):
    """From pictures to predictions, with nothing but the images."""
    for name in ("work", "data"):
        (tmp_path / name).mkdir()
        # User 10001 writes here.
        (tmp_path / name).chmod(0o777)

    def highway(*words):
        mounts = ["-v", f"{tmp_path}/work:/work", "-v", f"{tmp_path}/data:/data"]
        done = subprocess.run([PROGRAM, "run", *mounts, train, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    highway("train", "demo", "--epochs", "1", "--schedule.warmup-steps", "10")
    highway("export", "runs/demo", "--gates")
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

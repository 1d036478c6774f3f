"""Labels, health checks and bills of materials of the Dockerfile."""

import re
import socket
import subprocess
import threading
from configparser import ConfigParser
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from highway_keras import __version__
from serving.http.middleware import OPEN
from tests.dockerfile import DOCKERFILE, has_ipv6, stage, words

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = {"train": "PYTHON_IMAGE", "tf-serving": "TF_SERVING_IMAGE", "endpoint": "PYTHON_IMAGE"}
GIVEN = ("VERSION", "REVISION", "CREATED")
SBOM = "/opt/highway/sbom.cdx.json"


@pytest.mark.parametrize(("target", "base"), TARGETS.items())
def test_an_image_has_the_labels_of_the_open_container_initiative(target, base):
    text = stage(target)
    found = dict(re.findall(r'org\.opencontainers\.image\.([a-z.]+)="([^"]*)"', text))
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    description = found.pop("description")
    assert len(description) > 20
    assert found == {
        "title": f"highway-{target}",
        "licenses": setup["metadata"]["license"],
        "base.name": f"${{{base}}}",
        "version": "${VERSION}",
        "revision": "${REVISION}",
        "created": "${CREATED}",
    }
    # An argument is empty in a stage that does not name it; at the end, it builds nothing anew.
    *_, arguments, _ = text.strip().splitlines()
    assert arguments.split() == ["ARG", base, *GIVEN]


def test_make_images_gives_every_argument_of_the_labels():
    (recipe,) = re.findall(r"^image-%:\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    given = dict(re.findall(r"--build-arg ([A-Z]+)=\$\$\((.*?)\)(?= |$)", recipe.replace("\\\n\t", ""), re.MULTILINE))
    assert sorted(given) == sorted(GIVEN)
    found = subprocess.run(["sh", "-c", given["VERSION"]], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == __version__
    targets = re.search(r"^IMAGES := (.*)$", MAKEFILE, re.MULTILINE)[1].split()
    assert targets == [*TARGETS]


def test_the_base_of_python_is_pinned_by_digest():
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.13-slim@sha256:[0-9a-f]{64}", base)


class Answers(BaseHTTPRequestHandler):
    """Answers each request with the status of the server."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        pass


class IPv6Server(HTTPServer):
    """Answers by IPv6 only, as the endpoint does."""

    address_family = socket.AF_INET6

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()


@contextmanager
def answering(host):
    kind = IPv6Server if ":" in host else HTTPServer
    with kind((host, 0), Answers) as server:
        server.asked, server.status = [], 200
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield server
        server.shutdown()


@pytest.fixture
def endpoint():
    with answering("127.0.0.1") as server:
        yield server


def is_healthy(target, port, command="/dev/null"):
    program, option, script = words(target, "HEALTHCHECK")
    # No interpreter that takes longer to start than a prediction takes.
    assert (program, option) == ("bash", "-c")
    assert script.count("8501") == 1
    # What the first process of a container was started with.
    script = script.replace("8501", str(port)).replace("/proc/1/cmdline", str(command))
    return subprocess.run([program, option, script], capture_output=True, timeout=30, check=False).returncode == 0


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (404, False)])
def test_the_health_check_of_the_endpoint_reads_the_status(endpoint, status, healthy):
    endpoint.status = status
    assert is_healthy("endpoint", endpoint.server_port) == healthy
    assert endpoint.asked == ["/v2/health/live"]
    # It has no key.
    assert endpoint.asked[0] in OPEN


@pytest.mark.parametrize(
    ("arguments", "healthy"),
    [
        ("--port {port} --key none", True),
        ("--port={port}", True),
        ("--port 1 --port {port}", True),
        ("--grpc-port {port}", False),
        ("--port {port}1", False),
    ],
)
def test_the_health_check_asks_the_port_of_the_command(endpoint, tmp_path, arguments, healthy):
    assert is_healthy_with(tmp_path, arguments.format(port=endpoint.server_port)) == healthy


@pytest.mark.parametrize(
    ("listening", "arguments", "healthy"),
    [
        ("0.0.0.0", "", True),
        ("127.0.0.1", "--host localhost", True),
        ("127.0.0.7", "--host 127.0.0.7", True),
        ("127.0.0.7", "--host=127.0.0.7", True),
        ("::1", "--host ::1", True),
        ("::1", "--host ::", True),
        ("::", "--host ::", True),
        ("::1", "--host 127.0.0.1 --host ::1", True),
        ("::1", "--host ::1 --host 127.0.0.1", False),
        ("::1", "--hosts ::1", False),
        ("127.0.0.7", "", False),
    ],
)
def test_the_health_check_asks_the_address_of_the_command(tmp_path, listening, arguments, healthy):
    if ":" in listening and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with answering(listening) as server:
        # Before and after the port.
        assert is_healthy_with(tmp_path, f"{arguments} --port {server.server_port}") == healthy
        assert is_healthy_with(tmp_path, f"--port {server.server_port} {arguments}") == healthy
        assert is_healthy_with(tmp_path, arguments, default=server.server_port) == healthy


def is_healthy_with(folder, arguments, default=None):
    """Checks with arguments after those of the image; by default, nothing listens to the default port."""
    command = folder / "cmdline"
    given = ["/opt/highway/bin/python", *words("endpoint", "ENTRYPOINT"), *arguments.split()]
    command.write_bytes(b"".join(word.encode() + b"\0" for word in given))
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    return is_healthy("endpoint", default or closed, command)


@pytest.mark.parametrize("target", ["endpoint", "tf-serving"])
def test_a_closed_port_is_not_healthy(endpoint, target):
    assert is_healthy(target, endpoint.server_port)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert not is_healthy(target, port)
    assert f"EXPOSE {'8500 ' * (target == 'tf-serving')}8501" in stage(target)


@pytest.mark.parametrize("target", ["train", "endpoint"])
def test_the_bill_of_materials_is_made_of_what_is_in_the_image(target):
    made = [line for line in stage(f"{target}-packages").splitlines() if re.match("(RUN|COPY|FROM) ", line)]
    # Nothing is installed or removed afterwards.
    *steps, last = made[-1].removeprefix("RUN ").split(" && ")
    program, *arguments = last.split()
    assert (program, arguments[0]) == ("/opt/sbom/bin/cyclonedx-py", "environment")
    assert arguments[arguments.index("--output-file") + 1] == SBOM
    assert arguments[-1] == "/opt/highway/bin/python"
    assert steps[0].startswith("pip --python /opt/highway/bin/python install ")
    assert f"COPY --from={target}-packages /opt/highway /opt/highway" in stage(target)
    assert SBOM in (ROOT / "docs" / "operations.md").read_text()


def test_the_tool_that_makes_the_bill_of_materials_is_pinned_and_stays_outside():
    (install,) = [line for line in stage("packages").splitlines() if "/opt/sbom" in line]
    assert install.endswith("/opt/sbom/bin/pip install --require-hashes --requirement sbom.lock")
    lock = (ROOT / "requirements" / "sbom.lock").read_text()
    assert re.search(r"^cyclonedx-bom==[\d.]+ \\\n    --hash=sha256:", lock, re.MULTILINE)
    assert not any("/opt/sbom" in stage(target) for target in TARGETS)

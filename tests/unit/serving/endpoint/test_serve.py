"""Endpoints that are started by a function: what is refused first, and a process that serves."""

import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx2 as httpx
import pytest

from serving.endpoint.options import EndpointError, EndpointOptions
from serving.endpoint.serve import CHILD, RESERVE, check_models, possible, serve
from tests.endpoint import IMAGES, eventually, is_loaded

ROOT = Path(__file__).parents[4]
PROGRAM = """
import sys
from pathlib import Path
from serving.endpoint.options import EndpointOptions
from serving.endpoint.serve import serve

def say(line):
    roots = {name.partition(".")[0] for name in sys.modules}
    print(line, sorted(roots & {"pipelines", "tensorflow", "keras", "tyro"}), flush=True)

options = EndpointOptions(models=Path(sys.argv[1]), port=0, grpc_port=0, key="secret")
sys.exit(serve(options, say))
"""


def test_the_folder_must_be_one_of_models(tmp_path):
    version = tmp_path / "models" / "demo" / "1"
    version.mkdir(parents=True)
    (version / "manifest.json").write_text("{}")
    said = []
    for folder, reason in (
        (version, f"is one version of a model. Name the folder of all models: {tmp_path / 'models'}"),
        (version.parent, f"is one model. Name the folder of all models: {tmp_path / 'models'}"),
        (tmp_path / "nowhere", "there is no folder"),
        (version / "manifest.json", "is a file. Name the folder of all models"),
    ):
        with pytest.raises(EndpointError, match=reason):
            check_models(folder, said.append)
    check_models(tmp_path / "models", said.append)
    assert said == []
    # Served all the same: models may come later.
    check_models(tmp_path, said.append)
    assert "has no models yet. Export one with `highway export RUN --to " in said[0]


def test_keys_and_ports_are_checked_before_anything_is_served(version, tmp_path):
    models = version.parents[1]
    for options, reason in (
        ({"rate": 1.0}, "--rate is a limit for each key"),
        ({"key_file": tmp_path / "nowhere"}, "the file of keys, cannot be read"),
        ({"trust": (tmp_path / "nowhere.pub",)}, "cannot be read"),
    ):
        with pytest.raises(EndpointError, match=reason):
            serve(EndpointOptions(models=models, **options))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(EndpointError, match=rf"cannot listen on 127\.0\.0\.1 port {port}: .* another with --port"):
            serve(EndpointOptions(models=models, port=port))
    # An address for documentation (RFC 5737), and a name that cannot exist (RFC 6761).
    for host in ("192.0.2.1", "nowhere.invalid"):
        with pytest.raises(EndpointError, match=rf"cannot listen on {host} port 0: .* another with --host\.") as error:
            serve(EndpointOptions(models=models, host=host, port=0, admit_everyone=True, origins=()))
        assert str(error.value).count(host) == 1
    with pytest.raises(EndpointError, match="not UTF-8"):
        serve(EndpointOptions(models=models, key="s\udcff"))


def test_workers_need_a_temporary_folder(version, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    said = []
    with pytest.raises(EndpointError, match=r"No such file or directory\. Set TMPDIR to a folder that can be written"):
        serve(EndpointOptions(models=version.parents[1], port=0, workers=2), said.append)
    assert said == []


def test_a_function_starts_an_endpoint(version):
    words = [sys.executable, "-c", PROGRAM, str(version.parents[1])]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            # The list is of packages that an endpoint does without.
            found = re.fullmatch(r"serving \S+ at (http://\S+) and grpc://127\.0\.0\.1:\d+ \[\]\n", line)
            with httpx.Client(base_url=found[1], headers={"x-api-key": "secret"}, timeout=60) as client:
                eventually(lambda: is_loaded(client.get("/v2/health/ready")), 60)
                raw = {"content-type": "application/octet-stream"}
                answer = client.post("/predict/tiny", content=IMAGES.tobytes(), headers=raw)
                assert len(answer.json()["predictions"]) == len(IMAGES)
                assert httpx.get(f"{found[1]}/models").status_code == 401
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_the_limit_of_open_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
        assert possible(500, children=0) == 500
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 500 + RESERVE
        assert possible(500, children=64) == 500
        reserve = RESERVE + 64 * CHILD
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 500 + reserve
        assert possible(10**9, children=0) == before[1] - RESERVE
        assert possible(10**9, children=64) == before[1] - reserve
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

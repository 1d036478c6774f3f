"""`highway serve` as a process: version changes, overload, interrupts and shutdown lose no request."""

import json
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import numpy as np
import pytest
from PIL import Image

from pipelines.verbs.cli import main
from tests.digits import ten_digits
from tests.endpoint import Endpoint, add_bad_version, add_version, eventually, highway

RAW = {"content-type": "application/octet-stream"}
HEAD = b"POST /predict/digits HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"


@pytest.fixture
def models(repository, tmp_path):
    return shutil.copytree(repository, tmp_path / "models")


@pytest.fixture
def endpoint(models, tmp_path):
    with Endpoint(models, tmp_path / "log") as started:
        yield started


class Traffic:
    """Threads that send requests in a loop and keep every response."""

    def __init__(self, url, threads=4):
        self.url, self.answers, self._stop = url, [], threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def _run(self):
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self._stop.is_set():
                self.answers.append(client.post("/predict/digits?top=1", content=ten_digits().tobytes(), headers=RAW))
                # Four threads leave the cores to the endpoint.
                time.sleep(0.01)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def version(self):
        return self.answers[-1].json()["version"] if self.answers else None


def labels(answer):
    assert answer.status_code == 200, answer.text
    return [one["top"][0]["label"] for one in answer.json()["predictions"]]


def test_version_changes_lose_no_request(endpoint, models):
    digits = models / "digits"
    with Traffic(endpoint.url) as traffic:
        eventually(lambda: traffic.version() == 1)
        add_version(digits, 2)
        eventually(lambda: traffic.version() == 2)
        # A damaged version is reported, and the previous one stays in service.
        add_bad_version(digits, 3)
        status = f"{endpoint.url}/v1/models/digits"
        eventually(lambda: "END" in httpx.get(status, verify=False).text)
        bad, good = httpx.get(status, verify=False).json()["model_version_status"]
        assert (bad["version"], bad["state"], good["version"], good["state"]) == ("3", "END", "2", "AVAILABLE")
        assert "model.onnx is damaged" in bad["status"]["error_message"]
        assert "damaged" in httpx.get(f"{endpoint.url}/models", verify=False).json()[0]["failed"]["3"]
        # Roll back to the first version with `highway release`.
        rest = len(traffic.answers)
        add_version(digits, 4)
        eventually(lambda: traffic.version() == 4)
        assert main(["release", str(digits), "--versions", "1", "4", "--labels", "stable=1"]) == 0
        eventually(lambda: httpx.get(f"{status}/labels/stable", verify=False).status_code == 200)
        assert main(["release", str(digits), "--versions", "1", "--labels", "stable=1"]) == 0
        eventually(lambda: traffic.version() == 1)
    assert len(traffic.answers) > rest > 0
    expected = labels(traffic.answers[0])
    assert all(labels(answer) == expected for answer in traffic.answers)
    log = endpoint.log()
    assert {(one["version"], "damaged" in one["why"]) for one in log if one["message"] == "version refused"} == {
        (3, True)
    }
    assert [one["version"] for one in log if one["message"] == "version loaded"] == [1, 2, 4, 1]


def test_a_slowly_copied_version_is_served_once_complete(endpoint, models):
    source, target = models / "digits" / "1", models / "digits" / "2"
    content = json.loads((source / "manifest.json").read_text()) | {"version": 2}
    files = sorted(path for path in source.rglob("*") if path.is_file() and path.name != "manifest.json")
    target.mkdir()
    (target / "manifest.json").write_text(json.dumps(content))
    for path in files:
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with copy.open("wb") as file:
            # The endpoint polls in between; growing a file does not change the time of its folder.
            file.write(path.read_bytes()[:10])
            file.flush()
            eventually(lambda: "2" in httpx.get(f"{endpoint.url}/models", verify=False).json()[0]["failed"])
            file.write(path.read_bytes()[10:])
    eventually(lambda: httpx.get(f"{endpoint.url}/models", verify=False).json()[0]["versions"] == [2])


def test_shutdown_answers_accepted_requests(endpoint, tmp_path):
    # Large enough to be in flight for a while.
    Image.new("L", (6000, 6000), 255).save(tmp_path / "large.png")
    content = (tmp_path / "large.png").read_bytes()
    with ThreadPoolExecutor(4) as threads:
        url = f"{endpoint.url}/predict/digits"
        waiting = [threads.submit(httpx.post, url, content=content, timeout=60) for _ in range(4)]
        eventually(lambda: metric(endpoint, "highway_requests_in_flight") == 5)
        assert endpoint.stop() == 0
        assert [one.result().status_code for one in waiting] == [200] * 4
    with pytest.raises(httpx.ConnectError):
        httpx.get(endpoint.url)


@pytest.mark.slow
def test_slow_clients_are_cut_off_and_do_not_delay_shutdown(models, tmp_path):
    limits = ("--header-timeout", "0.5", "--body-timeout", "1", "--idle-timeout", "0.5", "--timeout", "60")
    half = (
        b"",
        HEAD[:20],
        HEAD + b"Content-Length: 784\r\n\r\nhalf",
        b"GET /models HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )

    def last_status(connection):
        with connection:
            while part := connection.recv(2**16):
                last = part
            return last[9:12] if "last" in locals() else b""

    def send_halves(endpoint):
        connections = [connect(endpoint) for _ in half]
        for connection, part in zip(connections, half, strict=True):
            connection.sendall(part)
        return connections

    with Endpoint(models, tmp_path / "log", *limits) as endpoint:
        assert [last_status(one) for one in send_halves(endpoint)] == [b"", b"408", b"408", b"200"]
        assert metric(endpoint, 'highway_connections_cut_total{why="body"}') == 1
    with Endpoint(models, tmp_path / "log") as endpoint:
        connections = send_halves(endpoint)
        eventually(lambda: metric(endpoint, "highway_requests_in_flight") == 2)
        start = time.monotonic()
        assert endpoint.stop() == 0
        # Far below the time limits of the server.
        assert time.monotonic() - start < 20
        assert [last_status(one) for one in connections] == [b"", b"", b"408", b"200"]
        assert not [line for line in endpoint.log() if line["level"] == "error"]


def test_an_interrupt_exits_with_status_130(endpoint):
    assert endpoint.stop(signal.SIGINT) == 130


def metric(endpoint, name):
    lines = httpx.get(f"{endpoint.url}/metrics", verify=False).text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), None)


def test_overload_is_refused_with_a_time_to_retry(models, tmp_path):
    content = ten_digits().repeat(20, axis=0).tobytes()
    with Endpoint(models, tmp_path / "log", "--queue", "1") as endpoint, ThreadPoolExecutor(16) as threads:
        client = httpx.Client(base_url=endpoint.url, timeout=60)

        def ask(_):
            return client.post("/predict/digits", content=content, headers=RAW)

        answers = []
        eventually(lambda: answers.extend(threads.map(ask, range(64))) or any(a.status_code == 503 for a in answers))
        client.close()
    assert {answer.status_code for answer in answers} == {200, 503}
    for answer in answers:
        if answer.status_code == 503:
            assert int(answer.headers["retry-after"]) >= 1
            assert "the limit is 1" in answer.json()["error"]


def test_a_slow_prediction_times_out(models, tmp_path):
    Image.new("L", (4000, 4000), 255).save(tmp_path / "large.png")
    with Endpoint(models, tmp_path / "log", "--timeout", "0.001") as endpoint:
        answer = httpx.post(f"{endpoint.url}/predict/digits", content=(tmp_path / "large.png").read_bytes(), timeout=60)
        assert (answer.status_code, "longer than 0.001 s" in answer.json()["error"]) == (504, True)


def test_a_connection_survives_a_refused_request(shared_endpoint):
    length = 2**25 + 1
    with connect(shared_endpoint) as connection:
        # Refused at once by its length; the body that follows must not be read as the next request.
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % length)
        status, content = read_response(connection)
        assert (status, "limit of 33,554,432" in content["error"]) == (413, True)
        piece = b"GET /models HTTP/1.1\r\n\r\n" + bytes(2**16)
        sent = 0
        while sent < length:
            sent += connection.send(piece[: length - sent])
        connection.sendall(HEAD + b"Content-Length: 784\r\n\r\n" + ten_digits()[0].tobytes())
        status, content = read_response(connection)
        assert (status, len(content["predictions"])) == (200, 1)


def test_a_chunked_body_is_cut_off_at_the_limit(shared_endpoint):
    with connect(shared_endpoint) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + bytes(2**20) + b"\r\n"
        for _ in range(33):
            connection.sendall(chunk)
        status, content = read_response(connection)
        assert (status, "limit of 33,554,432" in content["error"]) == (413, True)
        assert metric(shared_endpoint, "highway_bodies_bytes") == 0


def test_disconnected_clients_leak_no_memory_and_log_no_error(endpoint):
    for _ in range(5):
        with connect(endpoint) as connection:
            connection.sendall(HEAD + b"Content-Length: 784\r\n\r\n" + bytes(100))
        with connect(endpoint) as connection:
            connection.sendall(HEAD + b"Content-Length: 784\r\n\r\n" + ten_digits()[0].tobytes())
    eventually(lambda: metric(endpoint, "highway_requests_in_flight") == 1)
    refused = 'highway_requests_total{model="digits",route="/predict/{name}",status="499",version="1"}'
    eventually(lambda: metric(endpoint, refused) == 5)
    assert metric(endpoint, "highway_bodies_bytes") == 0
    assert all(one["level"] == "info" for one in endpoint.log())


def connect(endpoint):
    host, port = endpoint.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def read_response(connection):
    content = b""
    while b"\r\n\r\n" not in content:
        content += connection.recv(2**16)
    head, _, body = content.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    length = int(next(line for line in lines if line.startswith("content-length")).split(":")[1])
    while len(body) < length:
        body += connection.recv(2**16)
    assert len(body) == length
    return int(lines[0].split()[1]), json.loads(body)


def test_head_and_options_requests_and_encodings(shared_endpoint):
    for path in ("/", "/static/page.js", "/v2/health/live", "/models"):
        got, head = httpx.get(shared_endpoint.url + path), httpx.head(shared_endpoint.url + path)
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(got.content)))
    answer = httpx.options(f"{shared_endpoint.url}/predict/digits")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "Expected: POST" in answer.json()["error"]
    answer = httpx.post(f"{shared_endpoint.url}/predict/digits", content=b"x", headers={"content-encoding": "br"})
    assert (answer.status_code, "'br'" in answer.json()["error"]) == (415, True)


def test_metrics_and_log_have_requests_batches_and_versions(endpoint, models):
    add_bad_version(models / "digits", 2)
    httpx.post(f"{endpoint.url}/predict/digits", content=ten_digits().tobytes(), headers=RAW)
    eventually(lambda: metric(endpoint, 'highway_version_served{model="digits",version="2"}') == 0)
    assert metric(endpoint, 'highway_version_served{model="digits",version="1"}') == 1
    assert metric(endpoint, 'highway_waiting_pictures{model="digits"}') == 0
    assert metric(endpoint, 'highway_batch_pictures_sum{model="digits"}') == len(ten_digits())
    assert metric(endpoint, 'highway_batch_pictures_bucket{le="8.0",model="digits"}') == 0
    assert metric(endpoint, 'highway_batch_pictures_bucket{le="16.0",model="digits"}') == 1
    assert metric(endpoint, 'highway_batch_seconds_count{model="digits"}') == 1
    assert metric(endpoint, 'highway_request_seconds_count{model="digits",route="/predict/{name}",version="1"}') == 1
    assert metric(endpoint, "process_resident_memory_bytes") > 1e6
    (line,) = (one for one in endpoint.log() if one.get("path") == "/predict/digits")
    assert {"message": "request", "client": "127.0.0.1", "method": "POST", "status": 200}.items() <= line.items()
    assert 0 < line["ms"] < 60_000
    assert line["time"].endswith("Z")


def test_a_public_address_requires_a_key_and_origins(repository, monkeypatch, capsys):
    def error(*words):
        assert main(["serve", str(repository), *words]) == 2
        return capsys.readouterr().err

    open_to_all = ("--host", "0.0.0.0", "--port", "0")
    monkeypatch.setenv("HIGHWAY_API_KEY", "")
    assert "HIGHWAY_API_KEY" in error(*open_to_all)
    monkeypatch.setenv("HIGHWAY_API_KEY", "k")
    assert "--origins none" in error(*open_to_all)
    assert "--port" in error("--port", "x")


def test_a_port_in_use_is_refused(shared_endpoint, repository):
    done = highway("serve", repository, "--port", shared_endpoint.url.rpartition(":")[2])
    assert done.returncode == 2
    assert "Choose another with --port" in done.stderr


def test_cross_origin_requests_need_a_listed_origin_and_the_key(models, tmp_path):
    words = ("--host", "0.0.0.0", "--origins", "https://example.org")
    with Endpoint(models, tmp_path / "log", *words, HIGHWAY_API_KEY="s3cret") as endpoint:
        url = endpoint.url
        site = {"origin": "https://example.org"}
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "x-api-key"}
        allowed = httpx.options(f"{url}/predict/digits", headers={**site, **asked})
        assert allowed.status_code == 200
        assert "POST" in allowed.headers["access-control-allow-methods"]
        other = {"origin": "https://example.com"}
        assert httpx.options(f"{url}/predict/digits", headers={**other, **asked}).status_code == 400
        # A page must be able to read the reason for the refusal.
        refused = httpx.get(f"{url}/models", headers=site)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, site["origin"])
        given = httpx.get(f"{url}/models", headers={**site, "authorization": "bearer s3cret"})
        assert given.status_code == 200
        assert "inference-header-content-length" in given.headers["access-control-expose-headers"].lower()


def test_predict_by_url_equals_predict_in_process(shared_endpoint, repository, tmp_path, capsys):
    paths = []
    for number, digit in enumerate(ten_digits()):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(digit.reshape(28, 28)).save(paths[-1])

    def predict(*words):
        # Enough files for more than one request.
        assert main(["predict", *map(str, (*words, *paths * 8)), "--format", "json"]) == 0
        printed = capsys.readouterr()
        return [json.loads(line) for line in printed.out.splitlines()], printed.err

    expected, _ = predict(repository / "digits" / "1")
    found, said = predict("--url", shared_endpoint.url, "digits")
    assert said == "digits version 1 answered\n"
    assert len(found) == 80
    for one, other in zip(found, expected, strict=True):
        assert (one["file"], [guess["label"] for guess in one["top"]]) == (
            other["file"],
            [g["label"] for g in other["top"]],
        )
        given = [guess["probability"] for guess in one["top"]]
        np.testing.assert_allclose(given, [guess["probability"] for guess in other["top"]], atol=1e-5)


def test_errors_of_predict_by_url_are_one_message(models, tmp_path, monkeypatch, capsys):
    bad = tmp_path / "bad.png"
    bad.write_text("not an image")
    with Endpoint(models, tmp_path / "log", HIGHWAY_API_KEY="k") as endpoint:

        def error(url, model="digits"):
            assert main(["predict", "--url", url, model, str(bad)]) == 2
            printed = capsys.readouterr()
            assert (printed.out, "Traceback" in printed.err) == ("", False)
            return printed.err

        monkeypatch.delenv("HIGHWAY_API_KEY", raising=False)
        assert "Set HIGHWAY_API_KEY" in error(endpoint.url)
        monkeypatch.setenv("HIGHWAY_API_KEY", "k")
        assert "there is no model 'nothing'. Served are: digits." in error(endpoint.url, "nothing")
        assert f"{bad} is not an image" in error(endpoint.url)
        endpoint.stop()
        start = time.monotonic()
        assert "cannot be reached" in error(endpoint.url)
        assert time.monotonic() - start > 2
    assert "is not the address of an endpoint" in error("localhost:80")

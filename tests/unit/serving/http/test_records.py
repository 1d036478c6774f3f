"""The traces of a request in answer, metrics and log."""

import io
import itertools
import json
import logging
import shutil
import threading

import pytest

from serving.engine import trials
from serving.engine.batching import Cost
from serving.engine.settings import Settings
from serving.http.app import make_app
from serving.http.logs import JsonFormatter
from serving.requests import metrics
from tests.endpoint import IMAGES, LoadedClient, add_version, eventually

RAW = {"content-type": "application/octet-stream"}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def lines(caplog):
    """Returns the lines of the access log."""
    caplog.set_level(logging.INFO)
    formatter = JsonFormatter()
    return lambda: [json.loads(formatter.format(one)) for one in caplog.records if one.name == "highway.access"]


def value(name, **labels):
    shown = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    text = metrics.generate_latest(metrics.REGISTRY).decode()
    found = (line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name}{{{shown}}} "))
    return float(next(found, 0))


def test_an_answer_names_model_and_version(client, lines):
    about = {"model": "tiny", "version": "1", "route": "/predict/{name}"}
    before = value("highway_requests_total", status="200", **about), value("highway_request_seconds_count", **about)
    answer = client.post(
        "/predict/tiny", content=IMAGES.tobytes(), headers={**RAW, "x-request-id": "a-1", "traceparent": PARENT}
    )
    assert answer.status_code == 200
    assert answer.headers["x-request-id"] == "a-1"
    assert answer.headers["traceparent"].startswith(PARENT[:36])
    after = value("highway_requests_total", status="200", **about), value("highway_request_seconds_count", **about)
    assert after == (before[0] + 1, before[1] + 1)
    line = lines()[-1]
    assert {"model": "tiny", "version": 1, "traceparent": answer.headers["traceparent"]}.items() <= line.items()
    assert not {"kind", "reason", "key"} & line.keys()


@pytest.mark.parametrize(
    ("path", "known", "kind"),
    [
        ("/predict/tiny", ("tiny", "1"), "request"),
        ("/v1/models/tiny:predict", ("tiny", "1"), "request"),
        ("/v2/models/tiny/infer", ("tiny", "1"), "request"),
        ("/v2/models/tiny/versions/7/infer", ("tiny", ""), "unknown_model"),
        ("/v2/models/tiny/versions/x/infer", ("tiny", ""), "request"),
        ("/predict/tiny?tpo=1", ("tiny", ""), "request"),
        ("/predict/invented", ("", ""), "unknown_model"),
        ("/invented", ("", ""), "path"),
        ("/models", ("", ""), "method"),
    ],
)
def test_a_refusal_names_its_reason_but_no_invented_model(client, lines, path, known, kind):
    model, version = known
    about = {"model": model, "version": version, "kind": kind}
    before = value("highway_errors_total", **about)
    answer = client.post(path)
    assert value("highway_errors_total", **about) == before + 1
    line = lines()[-1]
    assert (line["kind"], line["reason"], line.get("model", "")) == (kind, answer.json()["error"], model)
    assert line["status"] == answer.status_code
    assert line["traceparent"] == answer.headers["traceparent"]
    assert line["traceparent"][3:35] == answer.headers["x-request-id"]
    assert 'model="invented"' not in client.get("/metrics").text


def test_a_refused_model_is_named(version, lines):
    damaged = shutil.copytree(version.parent, version.parents[1] / "damaged") / "1"
    (damaged / "manifest.json").write_text("{}")
    about = {"model": "damaged", "version": ""}
    before = value("highway_errors_total", kind="model", **about)
    with LoadedClient(make_app(Settings(models=version.parents[1]))) as client:
        for path in ("/predict/damaged", "/v1/models/damaged:predict", "/v2/models/damaged/infer"):
            assert client.post(path).status_code == 503
            assert (lines()[-1]["model"], lines()[-1]["kind"]) == ("damaged", "model")
        assert client.get("/v1/models/damaged").status_code == 200
        assert lines()[-1]["model"] == "damaged"
    assert value("highway_errors_total", kind="model", **about) == before + 3
    assert value("highway_requests_total", route="/predict/{name}", status="503", **about) >= 1


@pytest.mark.parametrize(
    ("request_line", "route", "model"),
    [
        ("POST /predict/tiny", "/predict/{name}", "tiny"),
        ("POST /v1/models/tiny/versions/1:predict", "/v1/models/{name}/versions/{version}:predict", "tiny"),
        ("POST /v2/models/tiny/infer", "/v2/models/{name}/infer", "tiny"),
        ("HEAD /v2/models/tiny/ready", "/v2/models/{name}/ready", "tiny"),
        ("GET /predict/tiny", "/predict/{name}", "tiny"),
        ("GET /v2/models/stats", "/v2/models/stats", ""),
        ("GET /metrics", "/metrics", ""),
        ("POST /predict/invented", "/predict/{name}", ""),
        ("POST /invented", "unknown", ""),
    ],
)
def test_a_request_that_is_not_admitted_has_its_route_and_model(version, lines, request_line, route, model):
    about = {"route": route, "model": model, "version": ""}

    def count(status):
        return value("highway_requests_total", status=str(status), **about)

    settings = Settings(models=version.parents[1], api_key="secret", rate=0.001)
    with LoadedClient(make_app(settings)) as client:
        for key, status, kind in (("wrong", 401, "key"), ("secret", None, None), ("secret", 429, "rate")):
            before = count(status)
            answer = client.request(*request_line.split(), headers={"x-api-key": key})
            if status:
                assert (answer.status_code, count(status)) == (status, before + 1)
                assert (lines()[-1].get("model", ""), lines()[-1]["kind"]) == (model, kind)
    assert 'model="invented"' not in metrics.generate_latest(metrics.REGISTRY).decode()


def test_every_line_of_a_request_has_its_id(client, monkeypatch):
    monkeypatch.setattr("serving.engine.batching.Batcher.predict", lambda *_: 1 / 0)
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(JsonFormatter())
    monkeypatch.setattr(logging.getLogger("serving"), "handlers", [handler])
    client.post("/predict/tiny", content=IMAGES.tobytes(), headers={**RAW, "x-request-id": "a-2"})
    line = json.loads(handler.stream.getvalue())
    assert (line["message"], line["request_id"]) == ("a request failed", "a-2")
    assert "ZeroDivisionError" in line["exception"]


def test_series_of_versions_retired_long_ago_are_removed(monkeypatch):
    monkeypatch.setattr(metrics, "_retired", {})
    served = [{("old", number)} for number in range(metrics.RETIRED + 3)]
    for number in range(len(served)):
        metrics.requests("/", "old", str(number), 200).inc()
    for before, now in itertools.pairwise(served):
        metrics.retire(before, now)

    def kept():
        return [
            n
            for n in range(len(served))
            if value("highway_requests_total", route="/", model="old", version=str(n), status="200")
        ]

    assert kept() == list(range(2, len(served)))
    # A version that returns is no longer retired.
    metrics.retire(served[-1], {("old", 5)})
    metrics.retire({("old", 5)}, {("new", 1), ("new", 2)})
    assert 5 in kept()
    for number in range(100):
        metrics.retire({("gone", number)}, set())
    assert kept() == []


def test_keys_and_their_rate(version, tmp_path, lines):
    file = tmp_path / "keys"
    file.write_text("alice söcret\nbob other\n")
    settings = Settings(models=version.parents[1], key_file=file, rate=0.001, poll=0.02)
    with LoadedClient(make_app(settings)) as client:

        def status(key):
            return client.get("/models", headers={"authorization": b"Bearer " + key.encode()}).status_code

        assert [status(key) for key in ("", "wrong", "söcret", "other", "söcret")] == [401, 401, 200, 200, 429]
        answer = client.get("/models", headers={"x-api-key": "other"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1000")
        assert "0.001 requests per second" in answer.json()["error"]
        assert [(one.get("key"), one.get("kind")) for one in lines()[-6:]] == [
            (None, "key"), (None, "key"), ("alice", None), ("bob", None), ("alice", "rate"), ("bob", "rate"),
        ]  # fmt: skip
        assert [client.get(path).status_code for path in ("/v2/health/live", "/")] == [200] * 2


def test_a_removed_key_is_refused_while_a_version_is_being_opened(version, tmp_path, monkeypatch):
    file, opening, opened = tmp_path / "keys", threading.Event(), threading.Event()
    file.write_text("alice secret\nbob other\n")
    settings = Settings(models=version.parents[1], key_file=file, poll=0.02)

    def slow(*_):
        opening.set()
        opened.wait(60)
        return Cost()

    with LoadedClient(make_app(settings)) as client:

        def status(key):
            return client.get("/models", headers={"x-api-key": key}).status_code

        assert (status("secret"), status("other")) == (200, 200)
        monkeypatch.setattr(trials, "smoke_test_version", slow)
        add_version(version.parent, 2)
        try:
            assert opening.wait(60)
            file.write_text("bob other\n")
            eventually(lambda: status("secret") == 401)
            assert status("other") == 200
        finally:
            opened.set()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8501", 200), ("LOCALHOST", 200), ("[::1]:8501", 200), ("other.example", 200),
        ("evil.example:8501", 421), ("localhost.evil.example", 421), ("127.0.0.1.evil.example", 421), ("", 200),
    ],
)  # fmt: skip
def test_the_host_is_checked(named, host, status):
    answer = named.get("/models", headers={"host": host})
    assert answer.status_code == status
    assert status == 200 or "--hosts" in answer.json()["error"]
    assert named.get("/v2/health/live", headers={"host": host}).status_code == 200


def test_a_request_names_one_host(named):
    answer = named.get("/models", headers=[("host", "evil.example"), ("host", "localhost")])
    assert (answer.status_code, "more than one Host" in answer.json()["error"]) == (400, True)


@pytest.fixture
def named(version):
    settings = Settings(models=version.parents[1], hosts=("localhost", "::1", "Other.example"))
    with LoadedClient(make_app(settings), base_url="http://localhost") as made:
        yield made


def test_a_draining_endpoint_answers_but_is_not_ready(settings, client):
    assert "connection" not in client.get("/models").headers
    settings.draining.set()
    assert (client.get("/models").status_code, client.get("/models").headers["connection"]) == (200, "close")
    assert client.get("/v2/health/live").status_code == 200
    for path in ("/v2/health/ready", "/v2/models/tiny/ready"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")

"""The endpoint as an ASGI app, over the version made by hand."""

import base64
import errno
import gc
import io
import json
import shutil
import threading
import time

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from serving.engine.backends import InProcessBackend
from serving.engine.batching import Batcher
from serving.engine.catalog import Catalog
from serving.engine.settings import Settings
from serving.errors import UnavailableError
from serving.http.app import make_app
from serving.requests import metrics
from tests.endpoint import IMAGES, LoadedClient, eventually


def test_all_protocols_give_the_same_predictions(client, expected):
    def rows(answer):
        assert answer.status_code == 200, answer.text
        return answer.json()

    whole = "/v1/models/tiny"
    for path in (whole, whole + "/versions/1"):
        by_row = rows(client.post(path + ":predict", json={"instances": IMAGES.tolist()}))["predictions"]
        np.testing.assert_allclose([row["probabilities"] for row in by_row], expected, atol=1e-6)
        columns = rows(client.post(path + ":predict", json={"inputs": IMAGES.tolist()}))["outputs"]
        np.testing.assert_allclose(columns["probabilities"], expected, atol=1e-6)
        assert columns["class_id"] == expected.argmax(-1).tolist()
    given = {"name": "image", "datatype": "UINT8", "shape": [3, 4, 3, 1], "data": IMAGES.ravel().tolist()}
    first = rows(client.post("/v2/models/tiny/infer", json={"inputs": [given]}))["outputs"][0]
    np.testing.assert_allclose(np.reshape(first["data"], (3, 4)), expected, atol=1e-6)
    raw = {"content-type": "application/octet-stream"}
    plain = rows(client.post("/predict/tiny?top=4", content=IMAGES.tobytes(), headers=raw))
    for row, one in zip(expected, plain["predictions"], strict=True):
        assert [guess["probability"] for guess in one["top"]] == pytest.approx(sorted(row, reverse=True), abs=1e-6)


def test_binary_tensors(client, expected):
    given = {"name": "image", "datatype": "UINT8", "shape": [3, 4, 3, 1], "parameters": {"binary_data_size": 36}}
    asked = [{"name": "probabilities", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [given], "outputs": asked}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    answer = client.post("/v2/models/tiny/versions/1/infer", content=head + IMAGES.tobytes(), headers=headers)
    length = int(answer.headers["inference-header-content-length"])
    found = np.frombuffer(answer.content[length:], np.float32).reshape(3, 4)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_health_metadata_and_status(client):
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").status_code == 200
    assert {"binary_tensor_data", "classification", "statistics"} <= set(client.get("/v2").json()["extensions"])
    assert client.get("/v2/models/tiny").json()["versions"] == ["1"]
    assert client.get("/v2/models/tiny/ready").json()["ready"] is True
    found = client.get("/v1/models/tiny").json()
    status = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert found == {"name": "tiny", "ready": True, "model_version_status": [status]}
    # KServe's first protocol, and the page.
    assert client.get("/").json() == {"status": "alive"}
    assert "<html" in client.get("/", headers={"accept": "text/html,*/*"}).text
    signatures = client.get("/v1/models/tiny/metadata").json()["metadata"]["signature_def"]["signature_def"]
    assert signatures["serving_default"]["inputs"]["image"]["dtype"] == "DT_UINT8"
    assert client.get("/models").json()[0]["name"] == "tiny"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/other", 404),
        ("GET", "/v1/models/tiny/versions/9", 404),
        ("GET", "/v1/models/tiny/versions/x", 400),
        ("GET", "/v1/models/tiny/labels/stable", 404),
        ("GET", "/v2/models/other/ready", 404),
        ("POST", "/v2/models/other/infer", 404),
        ("POST", "/predict/other", 404),
        ("POST", "/predict/tiny", 400),
        ("POST", "/predict/tiny?top=0", 400),
        ("POST", "/predict/tiny?version=x", 400),
        ("POST", "/v1/models/tiny:predict", 400),
        ("GET", "/nowhere", 404),
        ("PUT", "/predict/tiny", 405),
    ],
)
def test_refusals_are_json_with_a_reason(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    assert len(answer.json()["error"]) > 5


def test_no_path_leads_to_the_host_that_a_request_names(client):
    answer = client.get("/v1/models/", headers={"host": "elsewhere.example"}, follow_redirects=False)
    assert (answer.status_code, "location" in answer.headers) == (404, False)


def test_only_a_new_version_is_frozen(monkeypatch, settings):
    # Frozen objects are never searched for cycles again, so the garbage of requests must not be frozen.
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(time.monotonic()))
    with LoadedClient(make_app(settings), raise_server_exceptions=False) as client:
        # At the start, and when the first check had found the version.
        eventually(lambda: len(frozen) == 2)
        assert client.post("/v1/models/tiny:predict", content=b"{").status_code == 400
        # Several checks.
        time.sleep(0.3)
        assert len(frozen) == 2


def test_an_error_does_not_echo_the_request(client):
    answer = client.post("/v1/models/tiny:predict", json={"instances": [], "signature_name": "x" * 10**6})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("there is no signature 'xxx")
    assert len(answer.content) < 3000


def test_an_old_version_explains_that_it_takes_no_files(client):
    file = io.BytesIO()
    Image.new("L", (3, 4)).save(file, "PNG")
    answer = client.post("/predict/tiny", content=file.getvalue(), headers={"content-type": "image/png"})
    assert answer.status_code == 400
    assert "Export the run again" in answer.json()["error"]
    body = {"signature_name": "serving_bytes", "instances": [{"b64": base64.b64encode(b"not an image").decode()}]}
    answer = client.post("/v1/models/tiny:predict", json=body)
    assert answer.status_code == 400
    assert "image 1 is not an image" in answer.json()["error"]


def test_explain_needs_gates(client):
    answer = client.post("/predict/tiny?explain=true", content=b"x")
    assert answer.status_code == 400
    assert "or its net has no highway layers. In the first case" in answer.json()["error"]
    assert "without --no-gates" in answer.json()["error"]


def test_limits(version):
    settings = Settings(models=version.parents[1], body=2000, images=2)
    raw = {"content-type": "application/octet-stream"}
    with LoadedClient(make_app(settings)) as client:
        answer = client.post("/predict/tiny", content=bytes(2001), headers=raw)
        assert (answer.status_code, "limit of 2,000" in answer.json()["error"]) == (413, True)
        # Without a Content-Length.
        answer = client.post("/predict/tiny", content=iter([bytes(1500)] * 2), headers=raw)
        assert (answer.status_code, "limit of 2,000" in answer.json()["error"]) == (413, True)
        answer = client.post("/predict/tiny", content=IMAGES.tobytes(), headers=raw)
        assert (answer.status_code, "limit of 2" in answer.json()["error"]) == (413, True)


def test_a_key(version):
    with LoadedClient(make_app(Settings(models=version.parents[1], api_key="söcret"))) as client:
        assert client.get("/models").status_code == 401
        assert client.get("/models", headers={"X-API-Key": "wrong"}).status_code == 401
        key = "söcret".encode()
        assert client.get("/models", headers={b"X-API-Key": key}).status_code == 200
        assert client.get("/models", headers={b"Authorization": b"Bearer " + key}).status_code == 200
        for path in ("/", "/v2/health/live", "/v2/health/ready", "/static/page.js"):
            assert client.get(path).status_code == 200


def test_keys_are_read_again_although_metrics_cannot_be_written(version, tmp_path, monkeypatch):
    def publish(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(metrics, "SHARED", True)
    monkeypatch.setattr(metrics, "publish", publish)
    (file := tmp_path / "keys").write_text("alice first-key\n")
    with LoadedClient(make_app(Settings(version.parents[1], poll=0.05, key_file=file))) as client:
        time.sleep(0.2)
        file.write_text("alice second-key\n")
        headers = {"authorization": "Bearer second-key"}
        eventually(lambda: client.get("/v1/models", headers=headers).status_code == 200)


def test_pages_of_other_sites(version):
    origin = {"Origin": "https://example.org"}
    with LoadedClient(make_app(Settings(models=version.parents[1]))) as client:
        assert "access-control-allow-origin" not in client.get("/models", headers=origin).headers
    with LoadedClient(make_app(Settings(models=version.parents[1], origins=("https://example.org",)))) as client:
        answer = client.get("/models", headers=origin)
        assert answer.headers["access-control-allow-origin"] == "https://example.org"


def test_metrics_name_the_route_not_the_path(client):
    client.post("/predict/tiny")
    client.get("/v1/models/nothing-of-that-name")
    text = client.get("/metrics").text
    assert 'highway_requests_total{model="tiny",route="/predict/{name}",status="400",version="1"}' in text
    assert "nothing-of-that-name" not in text


def test_a_new_version_is_served_without_a_restart(client, version):
    before = client.get("/v2/models/tiny").json()["versions"]
    aside = version.parent / ".aside"
    shutil.copytree(version, aside)
    manifest = json.loads((aside / "manifest.json").read_text())
    (aside / "manifest.json").write_text(json.dumps({**manifest, "version": 2}))
    aside.rename(version.parent / "2")
    for _ in range(200):
        if client.get("/v2/models/tiny").json()["versions"] != before:
            break
    assert client.get("/v2/models/tiny").json()["versions"] == ["2"]


def test_an_empty_repository_serves_nothing(tmp_path):
    with LoadedClient(make_app(Settings(models=tmp_path))) as client:
        assert client.get("/v2/health/live").status_code == 200
        assert client.get("/v2/health/ready").status_code == 503
        assert client.get("/models").json() == []


def test_a_model_that_is_being_dropped_does_not_matter_to_readiness(client, monkeypatch):
    # It was there when the models were listed.
    monkeypatch.setattr(Catalog, "names", lambda _: ["dropped", "tiny"])
    assert client.get("/v2/health/ready").status_code == 200


def test_a_model_that_is_being_dropped_has_statistics(client, monkeypatch):
    monkeypatch.setattr(Catalog, "models", lambda _: {})
    (found,) = client.get("/v2/models/tiny/stats").json()["model_stats"]
    assert (found["name"], found["version"]) == ("tiny", "1")


def test_the_page_may_load_nothing_from_elsewhere(client):
    client.headers["accept"] = "text/html"
    for path in ("/", "/static/page.js", "/static/page.css"):
        headers = client.get(path).headers
        allowed = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert allowed["default-src"] == allowed["frame-ancestors"] == "'none'"
        assert set(allowed.values()) <= {"'none'", "'self'", "'self' blob:"}
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-cache"
        assert client.get(path, headers={"if-none-match": headers["etag"]}).status_code in (200, 304)
    assert client.get("/static/nothing.js").status_code == 404
    assert client.get("/static/../app.py").status_code == 404


def test_two_apps_in_a_process(version):
    for _ in range(2):
        with LoadedClient(make_app(Settings(models=version.parents[1]))) as client:
            assert 'highway_version_served{model="tiny",version="1"} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("path", "body", "headers", "said"),
    [
        ("/v1/models/tiny:predict", b'{"signature_name": [null], "instances": []}', {}, "no signature"),
        ("/v2/models/tiny/infer", b"{}", {"inference-header-content-length": "9" * 5000}, "must be a number"),
        (
            "/v2/models/tiny/infer",
            b"{}",
            {"inference-header-content-length": "\u00b2".encode("latin-1")},
            "must be a number",
        ),
        ("/v2/models/tiny/infer", b"{}", {"inference-header-content-length": "0"}, "not JSON"),
        ("/predict/tiny?version=1&label=x", b"x", {}, "not both"),
        ("/predict/tiny", b"x", {"content-type": "multipart/form-data"}, "names no boundary"),
        ("/predict/tiny", b"--x\r\n", {"content-type": "multipart/form-data; boundary=x"}, "form"),
    ],
)
def test_odd_requests_are_refused(client, path, body, headers, said):
    answer = client.post(path, content=body, headers=headers)
    assert (answer.status_code, said in answer.json()["error"]) == (400, True), answer.text


@pytest.mark.parametrize("count", [3, 100])
def test_too_many_files_in_a_form(version, count):
    with LoadedClient(make_app(Settings(models=version.parents[1], images=2))) as client:
        answer = client.post("/predict/tiny", files=[("picture", b"x")] * count)
        assert (answer.status_code, "limit of 2" in answer.json()["error"]) == (413, True)


def test_a_bug_is_reported_in_json(client, monkeypatch):
    monkeypatch.setattr(Batcher, "predict", lambda *_: 1 / 0)
    answer = client.post(
        "/predict/tiny", content=IMAGES.tobytes(), headers={"content-type": "application/octet-stream"}
    )
    assert (answer.status_code, set(answer.json())) == (500, {"error"})


def test_an_unreachable_server_is_reported(client, monkeypatch):
    async def away(*_):
        raise UnavailableError("it is away")

    monkeypatch.setattr(Batcher, "predict", away)
    raw = {"content-type": "application/octet-stream"}
    for path in ("/predict/tiny", "/v1/models/tiny:predict"):
        answer = client.post(
            path, content=IMAGES.tobytes() if "predict/" in path else b'{"instances": []}', headers=raw
        )
        assert (answer.status_code, answer.json(), answer.headers["retry-after"]) == (503, {"error": "it is away"}, "1")


def test_a_model_that_computes_nan_is_an_error_in_all_protocols(version):
    class Nan(Batcher):
        async def predict(self, images, lone=False):
            return {"probabilities": np.full((len(images), 4), np.nan, "float32")}

    with pytest.MonkeyPatch.context() as patch, LoadedClient(make_app(Settings(models=version.parents[1]))) as client:
        patch.setattr(Batcher, "predict", Nan.predict)
        given = {"name": "image", "datatype": "UINT8", "shape": [3, 4, 3, 1], "data": IMAGES.ravel().tolist()}
        for path, body in {
            "/predict/tiny": {"content": IMAGES.tobytes(), "headers": {"content-type": "application/octet-stream"}},
            "/v1/models/tiny:predict": {"json": {"instances": IMAGES.tolist()}},
            "/v2/models/tiny/infer": {"json": {"inputs": [given]}},
        }.items():
            answer = client.post(path, **body)
            assert answer.status_code == 500
            assert "version 1 of model 'tiny' computed NaN or infinity as probabilities" in answer.json()["error"]


def test_the_endpoint_is_live_before_it_has_loaded_anything(version, monkeypatch):
    may = threading.Event()
    opened = InProcessBackend.open
    monkeypatch.setattr(InProcessBackend, "open", lambda *given: may.wait(10) and opened(*given))
    with TestClient(make_app(Settings(models=version.parents[1]))) as client:
        assert client.get("/v2/health/live").status_code == 200
        for path in ("/v2/health/ready", "/v2/models/tiny/ready", "/v1/models/tiny/metadata"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert "still being loaded" in answer.json()["error"]
        assert client.get("/models").json() == []
        assert "highway_loading 1.0" in client.get("/metrics").text
        may.set()
        eventually(lambda: client.get("/v2/health/ready").status_code == 200)
        assert client.get("/v2/models/tiny/ready").status_code == 200


def test_a_number_that_is_too_large_is_listed_everywhere_and_nothing_fails(client, version):
    shutil.copytree(version, version.with_name("9" * 20))
    eventually(lambda: len(client.get("/v1/models").json()["statuses"]["tiny"]) == 2)
    refused, _ = client.get("/v1/models").json()["statuses"]["tiny"]
    assert (refused["version"], refused["state"]) == ("9" * 20, "END")
    assert f"at most {2**63 - 1}" in refused["status"]["error_message"]
    assert 'highway_version_refused{model="tiny",reason="a version\'s number is at most' in client.get("/metrics").text
    assert "9" * 20 in client.get("/models").json()[0]["failed"]
    assert client.post("/v2/repository/index").json()[0]["version"] == "9" * 20
    raw = {"content-type": "application/octet-stream"}
    assert client.post("/predict/tiny", content=IMAGES.tobytes(), headers=raw).json()["version"] == 1
    answer = client.get(f"/v2/models/tiny/versions/{2**63}")
    assert (answer.status_code, f"up to {2**63 - 1}" in answer.json()["error"]) == (400, True)
    assert client.get(f"/v2/models/tiny/versions/{2**63 - 1}").status_code == 404


@pytest.mark.parametrize("path", ["", "/versions/1", "/labels/stable"])
def test_other_methods_of_tf_serving_are_not_served(client, path):
    answer = client.post(f"/v1/models/tiny{path}:classify", json={})
    said = "there is no method 'classify'. Expected: POST to a path that ends in :predict."
    assert (answer.status_code, answer.json()["error"]) == (400, said)
    answer = client.post(f"/v1/models/tiny{path}", json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


def test_refused_versions_are_reported_with_the_reason(client, version):
    bad = version.parent / "2"
    shutil.copytree(version, bad)
    reason = "has the manifest of version 1 of model 'tiny'"
    eventually(lambda: client.get("/v1/models").json()["statuses"]["tiny"][0]["state"] == "END")
    found = client.get("/v1/models").json()
    assert (found["models"], found["wrong"]) == (["tiny"], {})
    refused, served = found["statuses"]["tiny"]
    assert (refused["version"], refused["state"], served["state"]) == ("2", "END", "AVAILABLE")
    assert reason in refused["status"]["error_message"]
    assert reason in client.get("/models").json()[0]["failed"]["2"]
    (line,) = (one for one in client.get("/metrics").text.splitlines() if one.startswith("highway_version_refused{"))
    assert 'model="tiny"' in line
    assert reason in line


def test_a_missing_repository_is_reported_and_models_stay_in_service(client, version):
    root = version.parents[1]
    away = root.rename(root.with_name("away"))
    eventually(lambda: client.get("/v1/models").json()["wrong"])
    assert "cannot be read" in client.get("/v1/models").json()["wrong"][""]
    assert "cannot be read" in client.get("/models").json()[0]["wrong"]
    (status,) = client.get("/v1/models/tiny").json()["model_version_status"]
    assert (status["state"], status["status"]["error_code"]) == ("AVAILABLE", "OK")
    assert "stay in service" in status["status"]["error_message"]
    assert 'highway_folder_wrong{model="",reason="the repository' in client.get("/metrics").text
    assert client.get("/v2/health/ready").status_code == 200
    away.rename(root)
    eventually(lambda: not client.get("/v1/models").json()["wrong"])

"""The endpoint in front of TF Serving, over both of its protocols, with real exports.

The server is `tests/tf_serving_double.py`, which uses the published stubs: PyPI does not have TF Serving itself.
"""

import base64
import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import httpx2 as httpx
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow_serving.apis import get_model_metadata_pb2, prediction_log_pb2, prediction_service_pb2_grpc

from pipelines.verbs.cli import main
from serving import manifest
from serving.engine.settings import Settings
from serving.http.app import make_app
from tests.endpoint import LoadedClient

DOUBLE = Path(__file__).parents[1] / "tf_serving_double.py"
RAW = {"content-type": "application/octet-stream"}
PROTOCOLS = ("grpc", "rest")
# The server is a process with TensorFlow, and takes as long as all other tests of the endpoint together.
pytestmark = pytest.mark.slow


class Server:
    """The double in a separate process; its ports stay the same when it restarts."""

    def __init__(self, root):
        self.root, self.process = root, None
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in PROTOCOLS]
            self.ports = [one.getsockname()[1] for one in sockets]

    def address(self, protocol):
        port = self.ports[PROTOCOLS.index(protocol)]
        return f"127.0.0.1:{port}" if protocol == "grpc" else f"http://127.0.0.1:{port}"

    def start(self):
        words = [f"--port={self.ports[0]}", f"--rest_api_port={self.ports[1]}", f"--models={self.root}"]
        words.append(f"--model_config_file={self.root / 'models.config'}")
        self.process = subprocess.Popen([sys.executable, DOUBLE, *words], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().split() == [str(port) for port in self.ports]

    def stop(self):
        """Suspends the process until SIGCONT; returns when none of its threads runs any longer."""
        os.kill(self.process.pid, signal.SIGSTOP)
        # Threads stop one by one: one that still runs could answer.
        threads = list(Path(f"/proc/{self.process.pid}/task").iterdir())
        wait_for(lambda: all("State:\tT" in (thread / "status").read_text() for thread in threads))

    def states(self):
        answer = httpx.get(self.address("rest") + "/v1/models/tiny").json()
        return {one["version"]: one["state"] for one in answer["model_version_status"]}

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def running(exported, tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(exported, root / "tiny")
    release(root)
    made = Server(root)
    made.start()
    yield made
    made.kill()


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return request.param


@pytest.fixture
def server(running):
    """The running double, with both versions loaded and no release."""
    release(running.root, "--newest")
    wait_for(lambda: {version for version, state in running.states().items() if state == "AVAILABLE"} == {"1", "2"})
    return running


def release(root, *words):
    assert main(["release", str(root / "tiny"), *map(str, words)]) == 0


def serve(root, server=None, protocol="grpc", **settings):
    address = server and server.address(protocol)
    return LoadedClient(make_app(Settings(root, address, **{"poll": 0.05, **settings})), raise_server_exceptions=False)


def wait_for(found, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.02)
    raise AssertionError(f"timed out after {seconds} s")


def random_images(count):
    """Dark noise: the logits of bright noise are so large that two programs differ in the sixth digit on some CPUs."""
    return np.random.default_rng(count).integers(0, 64, (count, 28, 28, 1), dtype="uint8")


def predict(client, images, query=""):
    return client.post(f"/predict/tiny?explain=true&top=10{query}", content=images.tobytes(), headers=RAW)


def image_files(count):
    for image in random_images(count):
        file = io.BytesIO()
        Image.fromarray(image[..., 0]).resize((90, 70)).save(file, "PNG")
        yield file.getvalue()


def assert_same_answer(found, expected):
    """Asserts that two JSON answers are equal, with numbers to six digits."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same_answer(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same_answer(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-6)
    else:
        assert found == expected


@pytest.fixture(scope="module")
def in_process(exported):
    with serve(exported.parent) as client:
        yield client


@pytest.mark.parametrize("count", [1, 3, 130])
def test_answers_equal_those_of_in_process_inference(server, protocol, in_process, count):
    with serve(server.root, server, protocol) as client:
        for path, options in {
            "/predict/tiny?explain=true&top=10": {"content": random_images(count).tobytes(), "headers": RAW},
            "/v1/models/tiny:predict": {"json": {"inputs": random_images(count).tolist()}},
            "/v1/models/tiny/versions/2:predict": {
                "json": {
                    "signature_name": "serving_bytes",
                    "instances": [{"b64": base64.b64encode(file).decode()} for file in image_files(min(count, 3))],
                }
            },
        }.items():
            found, expected = client.post(path, **options), in_process.post(path, **options)
            assert (found.status_code, expected.status_code) == (200, 200), found.text
            assert_same_answer(found.json(), expected.json())


def test_an_empty_batch_is_answered(server, protocol, in_process):
    with serve(server.root, server, protocol) as client:
        answer = client.post("/v1/models/tiny:predict", json={"inputs": []})
        assert answer.json() == in_process.post("/v1/models/tiny:predict", json={"inputs": []}).json()


def test_versions_and_labels_are_those_of_the_release(server, protocol):
    release(server.root, "--versions", 1, 2, "--labels", "stable=1", "canary=2")
    with serve(server.root, server, protocol) as client:
        wait_for(lambda: client.get("/v2/models/tiny").json().get("versions") == ["1", "2"])
        images = random_images(2)
        body = {"inputs": images.tolist()}
        stable, canary = (
            client.post(f"/v1/models/tiny/labels/{label}:predict", json=body).json() for label in ("stable", "canary")
        )
        assert stable != canary
        assert_same_answer(client.post("/v1/models/tiny/versions/1:predict", json=body).json(), stable)
        assert_same_answer(client.post("/v1/models/tiny:predict", json=body).json(), canary)
        # TF Serving itself answers at the same paths.
        for label, expected in {"stable": stable, "canary": canary}.items():
            url = f"{server.address('rest')}/v1/models/tiny/labels/{label}:predict"
            wait_for(lambda url=url: httpx.post(url, json=body).status_code == 200)
            assert_same_answer(httpx.post(url, json=body).json(), expected)
        # Rolled back.
        release(server.root, "--versions", 1)
        wait_for(lambda: client.get("/v2/models/tiny").json()["versions"] == ["1"])
        assert_same_answer(client.post("/v1/models/tiny:predict", json=body).json(), stable)


def test_status_and_metadata_are_those_of_tf_serving(server):
    with serve(server.root, server) as client:
        asked = wait_for(lambda: client.get("/v1/models/tiny/metadata").json())
        there = httpx.get(f"{server.address('rest')}/v1/models/tiny/metadata").json()
        assert asked["model_spec"] == there["model_spec"]
        ours, theirs = (one["metadata"]["signature_def"]["signature_def"] for one in (asked, there))
        assert ours.keys() == theirs.keys() == {"serving_default", "serving_bytes"}
        for name, signature in ours.items():
            for side in ("inputs", "outputs"):
                assert signature[side].keys() == theirs[name][side].keys()
                for key, tensor in signature[side].items():
                    assert tensor["dtype"] == theirs[name][side][key]["dtype"]
                    assert tensor["tensor_shape"] == theirs[name][side][key]["tensor_shape"]
        path = "/v1/models/tiny/versions/2"
        # The rest is what KServe's clients read.
        assert httpx.get(server.address("rest") + path).json().items() <= client.get(path).json().items()
        assert client.get("/v2/models/tiny").json()["platform"] == "tensorflow_savedmodel"


def test_a_version_is_served_once_tf_serving_has_loaded_it(server, protocol):
    config = server.root / "models.config"
    whole = config.read_text()
    # The configuration of another program, or one that TF Serving has not read yet.
    config.write_text(whole.replace("latest { num_versions: 2 }", "specific { versions: 1 }"))
    wait_for(lambda: server.states()["2"] == "END")
    with serve(server.root, server, protocol) as client:
        wait_for(lambda: client.get("/v2/models/tiny").json().get("versions") == ["1"])
        status = {one["version"]: one for one in client.get("/v1/models/tiny").json()["model_version_status"]}
        assert (status["1"]["state"], status["2"]["state"]) == ("AVAILABLE", "END")
        assert "reports END for version 2 of model 'tiny'" in status["2"]["status"]["error_message"]
        answer = client.get("/v2/models/tiny/versions/2/ready")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert predict(client, random_images(1)).json()["version"] == 1
        config.write_text(whole)
        wait_for(lambda: client.get("/v2/models/tiny").json()["versions"] == ["2"])
        assert predict(client, random_images(1)).json()["version"] == 2


def test_new_versions_lose_no_request(server, exported):
    """Sends requests without a pause while TF Serving loads versions and unloads earlier ones."""
    images, answers, stop = random_images(2), [], threading.Event()

    def ask():
        while not stop.is_set():
            answers.append(predict(client, images))

    with serve(server.root, server) as client:
        asking = [threading.Thread(target=ask) for _ in range(3)]
        for thread in asking:
            thread.start()
        try:
            for version, like in ((3, "1"), (4, "2"), (5, "1")):
                aside = server.root / "tiny" / ".aside"
                shutil.copytree(exported / like, aside)
                content = json.loads((aside / manifest.NAME).read_text())
                (aside / manifest.NAME).write_text(json.dumps({**content, "version": version}))
                aside.rename(server.root / "tiny" / str(version))
                wait_for(lambda version=version: client.get("/v2/models/tiny").json()["versions"] == [str(version)])
                answers.append(predict(client, images))  # The threads may end before they meet the last version.
        finally:
            stop.set()
            for thread in asking:
                thread.join()
            for version in (3, 4, 5):
                shutil.rmtree(server.root / "tiny" / str(version), ignore_errors=True)
    assert {answer.status_code for answer in answers} == {200}
    said = {answer.json()["version"]: answer.json()["predictions"] for answer in answers}
    assert said.keys() == {2, 3, 4, 5}
    assert_same_answer(said[3], said[5])
    assert_same_answer(said[2], said[4])
    assert said[2] != said[3]


def test_a_request_to_an_unloaded_version_is_answered_by_the_next(server, protocol):
    release(server.root, "--versions", 1)
    wait_for(lambda: server.states()["2"] == "END")
    # Polling is too rare to notice the change.
    with serve(server.root, server, protocol, poll=3600) as client:
        assert predict(client, random_images(1)).json()["version"] == 1
        release(server.root, "--versions", 2)
        wait_for(lambda: server.states()["1"] == "END")
        answer = predict(client, random_images(1))
        assert (answer.status_code, answer.json()["version"]) == (200, 2)
        assert predict(client, random_images(1), "&version=1").status_code == 404


def test_another_model_under_the_same_name_is_refused(server, exported, protocol, tmp_path):
    aside = shutil.copytree(exported / "1", tmp_path / "tiny" / "2") / manifest.NAME
    aside.write_text(json.dumps({**json.loads(aside.read_text()), "version": 2}))
    with serve(tmp_path, server, protocol) as client:
        answer = predict(client, random_images(1))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "does not predict like version 2 of model 'tiny'" in answer.json()["error"]


def test_a_damaged_version_is_refused_whatever_tf_serving_has(server, exported, protocol, tmp_path):
    shutil.copytree(exported / "2", tmp_path / "tiny" / "2")
    (tmp_path / "tiny" / "2" / "variables" / "variables.index").write_bytes(b"")
    with serve(tmp_path, server, protocol) as client:
        answer = predict(client, random_images(1))
        assert (answer.status_code, "variables.index is damaged" in answer.json()["error"]) == (503, True)
        (status,) = client.get("/v1/models/tiny").json()["model_version_status"]
        assert "variables.index is damaged" in status["status"]["error_message"]


def test_the_endpoint_recovers_when_tf_serving_restarts(server, in_process):
    images = random_images(3)
    expected = predict(in_process, images).json()
    with contextlib.ExitStack() as stack:
        # One restart for both: it loads TensorFlow and all versions anew.
        clients = [stack.enter_context(serve(server.root, server, protocol)) for protocol in PROTOCOLS]
        for client in clients:
            assert_same_answer(predict(client, images).json(), expected)
        server.kill()
        try:
            for client in clients:
                answer = wait_for(lambda client=client: (found := predict(client, images)).status_code != 200 and found)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                assert "TF Serving at" in answer.json()["error"]
                assert client.get("/v2/health/ready").status_code == 503
                assert client.get("/v2/models/tiny/ready").status_code == 503
                assert client.get("/v2/health/live").status_code == 200
            # An endpoint that starts during the outage waits for the server, too.
            late = [stack.enter_context(serve(server.root, server, protocol)) for protocol in PROTOCOLS]
            for later in late:
                assert predict(later, images).status_code == 503
                assert later.get("/v2/health/ready").status_code == 503
            server.start()
            for later in late:
                # Version 1, as long as the server has not loaded version 2.
                wait_for(lambda one=later: predict(one, images).json().get("version") == expected["version"])
                assert_same_answer(predict(later, images).json(), expected)
        finally:
            if server.process.poll() is not None:
                server.start()
        for client in clients:
            wait_for(lambda client=client: predict(client, images).status_code == 200)
            assert_same_answer(predict(client, images).json(), expected)
            assert client.get("/v2/health/ready").status_code == 200


def test_a_hanging_server_does_not_block_requests(server, protocol):
    with serve(server.root, server, protocol, timeout=0.5) as client:
        server.stop()
        try:
            answer = predict(client, random_images(1))
            assert (answer.status_code, "0.5 s" in answer.json()["error"]) == (504, True)
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        wait_for(lambda: predict(client, random_images(1)).status_code == 200)


@pytest.fixture
def stub(server):
    with grpc.insecure_channel(server.address("grpc")) as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def test_warm_up_requests_are_those_that_tf_serving_reads(server, exported, stub):
    sizes = []
    for record in tf.data.TFRecordDataset(str(exported / "2" / manifest.WARMUP)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        answer = stub.Predict(request, timeout=60)
        (given,) = request.inputs.values()
        probabilities = tf.make_ndarray(answer.outputs["probabilities"])
        assert len(probabilities) == given.tensor_shape.dim[0].size
        np.testing.assert_allclose(probabilities.sum(-1), 1, atol=1e-5)
        sizes.append((request.model_spec.signature_name, len(probabilities)))
    assert sorted(sizes) == [(name, size) for name in ("serving_bytes", "serving_default") for size in (1, 32)]


def test_the_real_stub_reads_the_signatures(stub):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "tiny"
    found = get_model_metadata_pb2.SignatureDefMap()
    assert stub.GetModelMetadata(request, timeout=60).metadata["signature_def"].Unpack(found)
    assert set(found.signature_def) == {"serving_default", "serving_bytes"}

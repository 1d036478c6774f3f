"""`highway serve s3://...` over a local S3 server: versions come and go, uploads are interrupted, the server fails."""

import httpx2 as httpx
import pytest

from serving.bucket import BucketError, check
from serving.endpoint.options import EndpointError
from serving.endpoint.serve import check_bucket
from tests import tiny_model
from tests.endpoint import Endpoint, eventually

PIXELS = bytes(range(12))
RAW = {"content-type": "application/octet-stream"}
OFTEN = """
import runpy
from serving.engine import mirror
mirror.INTERVAL = 0.5
runpy.run_module("pipelines", run_name="__main__")
"""


class FrequentEndpoint(Endpoint):
    """Checks its bucket more often."""

    program = ("-c", OFTEN)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def client():
    """One client for all requests: each has certificates to read, which takes longer than a prediction."""
    with httpx.Client(timeout=60) as made:
        yield made


def test_a_bucket_is_served(bucket, client, tmp_path):
    def predicting():
        answer = client.post(f"{endpoint.url}/predict/tiny", content=PIXELS, headers=RAW)
        return answer.json()["version"] if answer.status_code == 200 else answer.status_code

    def model():
        return client.get(f"{endpoint.url}/models").json()[0]

    versions = {number: tiny_model.write(tmp_path / "tiny" / str(number), seed=number) for number in (1, 2, 3, 4)}
    bucket.upload(versions[1], "models/tiny/1")
    url = f"{bucket.url}/models"
    with FrequentEndpoint(url, tmp_path / "log") as endpoint:
        assert f"serving {url} at " in (tmp_path / "log").read_text()
        eventually(lambda: predicting() == 1)
        # Interrupted uploads: a file is cut off; the manifest is missing.
        (versions[4] / "model.onnx").write_bytes(b"the first bytes")
        bucket.upload(versions[4], "models/tiny/4")
        for name in ("labels.txt", "model.onnx", "picture.onnx"):
            bucket.put(f"models/tiny/3/{name}", (versions[3] / name).read_bytes())
        bucket.upload(versions[2], "models/tiny/2")
        eventually(lambda: predicting() == 2)
        eventually(lambda: model()["failed"].keys() == {"4"})
        assert f"{url}/tiny/4/model.onnx has 15 bytes" in model()["failed"]["4"]
        bucket.put("models/tiny/3/manifest.json", (versions[3] / "manifest.json").read_bytes())
        eventually(lambda: predicting() == 3)

        bucket.server.stop()
        eventually(lambda: "cannot be reached" in model()["wrong"])
        assert predicting() == 3
        bucket.server.start()
        eventually(lambda: model()["wrong"] == "")
        bucket.delete("models/tiny/3/")
        eventually(lambda: predicting() == 2)
        assert endpoint.stop() == 0
    assert [one["message"] for one in endpoint.log()].count("repository unavailable") == 1
    # It starts with what it has, even if the server is down.
    bucket.server.stop()
    with FrequentEndpoint(url, tmp_path / "log") as endpoint:
        assert predicting() == 2
        assert "cannot be reached" in model()["wrong"]


def test_what_cannot_be_served_is_said_at_the_start(bucket, tmp_path, monkeypatch):
    said = []
    url = f"{bucket.url}/models"
    assert check_bucket(url, said.append).is_relative_to(tmp_path)
    assert said == [f"{url} has no models yet: no MODEL/VERSION/manifest.json. It is checked every 10 s."]
    with pytest.raises(EndpointError, match=r"s3://nowhere/models cannot be found: The specified bucket does not"):
        check_bucket("s3://nowhere/models", said.append)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(BucketError, match=r"cannot be read: Unable to locate credentials. Give credentials as"):
        check(url)
    with pytest.raises(BucketError, match=r"cannot be found: its bucket has no valid name. Check the URL\.$"):
        check("s3://no_bucket!/models")

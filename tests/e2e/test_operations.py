"""`highway serve` as operators run it: keys from a file, and time to take it out before it stops."""

import signal

import httpx2 as httpx

from tests import tiny_model
from tests.endpoint import Endpoint, eventually

PIXELS = bytes(range(12))


def test_a_stopping_endpoint_answers_until_the_time_is_over(tmp_path):
    tiny_model.write(tmp_path / "models" / "tiny" / "1")
    keys = tmp_path / "keys"
    keys.write_text("alice first\n")
    words = ("--key-file", str(keys), "--drain", "2")
    with Endpoint(tmp_path / "models", tmp_path / "log", *words) as endpoint:

        def predict(key, **headers):
            headers |= {"content-type": "application/octet-stream", "x-api-key": key}
            return httpx.post(f"{endpoint.url}/predict/tiny", content=PIXELS, headers=headers)

        assert (predict("first").status_code, predict("second").status_code) == (200, 401)
        keys.write_text("alice first\nalice second\n")
        eventually(lambda: predict("second").status_code == 200)
        assert httpx.get(f"{endpoint.url}/v2/health/live", headers={"host": "evil.example"}).status_code == 200
        assert predict("first", host="evil.example").status_code == 421

        endpoint.process.send_signal(signal.SIGTERM)
        eventually(lambda: httpx.get(f"{endpoint.url}/v2/health/ready").status_code == 503)
        answer = predict("first")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert endpoint.process.wait(60) == 0
        line = [one for one in endpoint.log() if one.get("request_id") == answer.headers["x-request-id"]]
        assert [(one["model"], one["version"], one["key"]) for one in line] == [("tiny", 1, "alice")]

"""`highway serve` with invalid versions and versions that do not open."""

import json
import os
import subprocess
import sys

import httpx2 as httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from serving import manifest, signature
from tests import tiny_model
from tests.endpoint import ROOT, Endpoint, eventually

RAW = {"content-type": "application/octet-stream"}


def statuses(endpoint, model):
    found = httpx.get(f"{endpoint.url}/v1/models/{model}").json()["model_version_status"]
    return {one["version"]: (one["state"], one["status"]["error_message"]) for one in found}


def predict(endpoint, model):
    return httpx.post(f"{endpoint.url}/predict/{model}", content=bytes(12), headers=RAW)


def test_invalid_versions_and_a_missing_repository_leave_the_others_in_service(tmp_path):
    key, models = Ed25519PrivateKey.generate(), tmp_path / "models"
    (tmp_path / "trusted.pub").write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for name, version in (("digits", 1), ("digits", 2), ("digits", 3), ("zebras", 1), ("zebras", 2)):
        folder = tiny_model.write(models / name / str(version))
        (folder / signature.NAME).write_bytes(signature.sign(folder, key))
    # A wrong manifest, signed; a pipe; an unsigned version.
    shape = models / "digits" / "2"
    content = json.loads((shape / manifest.NAME).read_text())
    content["input"]["shape"] = [None, 9, 9, 1]
    (shape / manifest.NAME).write_text(json.dumps(content))
    (shape / signature.NAME).write_bytes(signature.sign(shape, key))
    (models / "digits" / "3" / manifest.ONNX).unlink()
    os.mkfifo(models / "digits" / "3" / manifest.ONNX)
    (models / "zebras" / "2" / signature.NAME).unlink()
    with Endpoint(models, tmp_path / "log", "--trust", str(tmp_path / "trusted.pub")) as endpoint:
        digits, zebras = statuses(endpoint, "digits"), statuses(endpoint, "zebras")
        assert {version: state for version, (state, _) in digits.items()} == {"3": "END", "2": "END", "1": "AVAILABLE"}
        assert "it is a pipe" in digits["3"][1]
        assert "the manifest says tensor(uint8) [9, 9, 1]" in digits["2"][1]
        assert (zebras["1"][0], "is not signed" in zebras["2"][1]) == ("AVAILABLE", True)
        assert [predict(endpoint, name).status_code for name in ("digits", "zebras")] == [200, 200]
        away = models.rename(tmp_path / "away")
        eventually(lambda: "stay in service" in statuses(endpoint, "digits")["1"][1])
        assert [predict(endpoint, name).status_code for name in ("digits", "zebras")] == [200, 200]
        folder = away / "zebras" / "2"
        (folder / signature.NAME).write_bytes(signature.sign(folder, key))
        away.rename(models)
        eventually(lambda: statuses(endpoint, "zebras") == {"2": ("AVAILABLE", "")})
        assert endpoint.stop() == 0
        refused = [line["why"] for line in endpoint.log() if line["message"] == "version refused"]
    assert len(refused) == len(set(refused)) == 3


def test_sigterm_stops_the_endpoint_while_a_prediction_never_ends(tmp_path):
    tiny_model.make_endless(tiny_model.write(tmp_path / "models" / "tiny" / "1"), always=False)
    with Endpoint(tmp_path / "models", tmp_path / "log", "--timeout", "0.5") as endpoint:
        answer = httpx.post(f"{endpoint.url}/predict/tiny", content=b"x" * 12, headers=RAW, timeout=60)
        assert (answer.status_code, "longer than 0.5 s" in answer.text) == (504, True)
        assert endpoint.stop() == 0


def test_sigterm_stops_the_endpoint_while_it_opens_a_version(tmp_path):
    """Opens a version without end, as on a disk that does not respond."""
    tiny_model.write(tmp_path / "models" / "digits" / "1")
    program = f"""
import sys, time
from pipelines.verbs.cli import main
from serving.engine.backends import InProcessBackend
def never(*_):
    print("opening", flush=True)
    time.sleep(1000)
InProcessBackend.open = never
sys.exit(main(["serve", {str(tmp_path / "models")!r}, "--port", "0", "--quiet"]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout.readline() == "opening\n"
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

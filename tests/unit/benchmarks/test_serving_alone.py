"""The small measurements of the endpoint: batches on all cores, and its health under hostile requests."""

import json

import httpx2 as httpx

from benchmarks import cores, hostile
from tests import tiny_model
from tests.endpoint import Endpoint


def test_cores(tmp_path, capsys):
    folder = tiny_model.write(tmp_path / "models" / "tiny" / "1")
    assert cores.main([str(folder), "--rounds", "1", "--seconds", "0.01", "--threads", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "tiny, 1 x 1",
        "tiny, 16 x 1",
        "tiny, 64 x 1",
        "tiny, 16 x 16",
    ]
    assert all("on one core" in line for line in lines)


def test_hostile_requests_are_json(monkeypatch):
    monkeypatch.setattr(hostile, "LARGE", 100_000)
    for sent in hostile.requests("digits").values():
        if sent.kind == "application/json":
            assert json.loads(sent.body)


def test_hostile(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(hostile, "LARGE", 100_000)
    for name, value in (("SLOW", 3), ("PAUSE", 0.0), ("HELD", 0.1)):
        monkeypatch.setattr(hostile, name, value)
    few = hostile.requests("tiny")
    few = {name: few[name] for name in ("a file", "a large answer")}
    monkeypatch.setattr(hostile, "requests", lambda _: few)
    tiny_model.write(tmp_path / "models" / "tiny" / "1")
    with Endpoint(tmp_path / "models", tmp_path / "log") as endpoint:
        assert hostile.main([endpoint.url, "tiny"]) == 0
        assert httpx.get(f"{endpoint.url}/v2/health/live").status_code == 200
    names = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["nothing", *few, "slow"]

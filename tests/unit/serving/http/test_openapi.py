from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from serving.engine.settings import Settings
from serving.http.app import make_app
from serving.http.openapi import operation


def test_the_parameters_of_a_path_are_described_in_its_order():
    described = operation(None, "/v1/models/{name}/versions/{version}")["parameters"]
    assert [one["name"] for one in described] == ["name", "version"]
    assert all(one["in"] == "path" and one["required"] and one["description"] for one in described)


def test_a_parameter_that_is_not_described_is_an_error():
    with pytest.raises(KeyError, match="share"):
        operation(None, "/best/{name}/{share}")


def test_requests_that_need_a_key_or_a_version_document_their_refusals():
    paths = TestClient(make_app(Settings(models=Path()))).get("/openapi.json").json()["paths"]
    for path, operations in paths.items():
        for method, described in operations.items():
            if not path.startswith("/v2/health/"):
                assert "401" in described["responses"], f"{method} {path}"
            if "{name}" in path:
                assert "503" in described["responses"], f"{method} {path}"

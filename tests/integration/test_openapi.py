"""The OpenAPI description of the endpoint, and requests generated from it, sent to a running one."""

import copy
import shutil
from pathlib import Path

import httpx2 as httpx
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from serving.engine.settings import Settings
from serving.http.app import make_app
from tests import table_model
from tests.endpoint import Endpoint


@pytest.fixture(scope="module")
def url(repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("endpoint")
    shutil.copytree(repository / "digits", folder / "models" / "digits")
    table_model.write(folder / "models" / "houses" / "1", regression=True)
    with Endpoint(folder / "models", folder / "log") as endpoint:
        yield endpoint.url


def with_existing_names(description):
    """Returns the description with names that exist: generated ones would all be 404."""
    values = {
        "name": ["digits", "houses", "nothing"],
        "version": ["0", "1", "2"],
        "label": ["stable"],
        "number": [0, 99],
    }
    for path in description["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter["schema"]["enum"] = values[parameter["name"]]
    return description


description = TestClient(make_app(Settings(models=Path()))).get("/openapi.json").json()
schema = schemathesis.openapi.from_dict(with_existing_names(copy.deepcopy(description)))


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_responses_match_the_description(case, url):
    # Checked: no 5xx, and status, headers and body as described. Requests that match the description may be refused,
    # because it cannot define which bytes are an image, or how many numbers a shape needs.
    case.call_and_validate(base_url=url, excluded_checks=[positive_data_acceptance])


def test_the_running_endpoint_serves_this_description(url):
    assert httpx.get(f"{url}/openapi.json").json() == description


def test_everything_is_described():
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert all(one["description"] for one in operation["responses"].values()), where
            (content,) = [operation["responses"]["200"]["content"]]
            assert all(one["schema"] != {} for one in content.values()), where
            assert method != "post" or {"413", "503", "504"} <= operation["responses"].keys(), where

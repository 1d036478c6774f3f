"""compose.yaml and the Dockerfile against each other, the Compose Specification and the program."""

import json
import re
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from pipelines.core.environment import API_KEY
from pipelines.core.parsing import parse
from pipelines.verbs import serve
from serving.endpoint.serve import GRACE
from tests.dockerfile import stage, words

ROOT = Path(__file__).parents[3]
COMPOSE = (ROOT / "compose.yaml").read_text()
SERVICES = yaml.safe_load(COMPOSE)["services"]


def accepted(*arguments):
    options = serve._options(parse(serve.Arguments, list(arguments), "highway serve", ""))
    return options.key, options.origins


def test_compose_fits_its_specification():
    schema = json.loads((ROOT / "tests" / "schemas" / "compose.json").read_text())
    validator = jsonschema_rs.validator_for(schema)
    assert list(map(str, validator.iter_errors(yaml.safe_load(COMPOSE)))) == []
    for right, wrong in (("read_only: true", "readonly: true"), ("pids: 512", "processes: 512")):
        assert right in COMPOSE
        assert not validator.is_valid(yaml.safe_load(COMPOSE.replace(right, wrong)))


def test_the_endpoint_is_started_with_valid_arguments(monkeypatch):
    monkeypatch.setenv(API_KEY, "secret")
    program, verb, *rest = words("endpoint", "ENTRYPOINT")
    assert (program, verb) == ("highway", "serve")
    assert accepted(*rest, *words("endpoint", "CMD")) == ("secret", ())
    assert accepted(*rest, *SERVICES["endpoint"]["command"]) == ("secret", ())
    # Only other origins replace those of the image.
    assert accepted(*rest, "--port", "80", "--key", "none") == (None, ())
    assert accepted(*rest, "--origins", "https://a.example") == ("secret", ("https://a.example",))


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_only_the_rights_it_needs(name):
    service = SERVICES[name]
    assert re.search(r"^USER 10001$", stage(service["build"]["target"]), re.MULTILINE)
    assert re.search(r"^HEALTHCHECK ", stage(service["build"]["target"]), re.MULTILINE)
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(volume.endswith(":ro") for volume in service["volumes"])


def test_only_the_endpoint_is_reachable_from_outside():
    assert "ports" not in SERVICES["tf-serving"]
    assert SERVICES["endpoint"]["ports"] == ["127.0.0.1:8501:8501"]


def test_requests_in_flight_have_time_to_finish():
    assert int(SERVICES["endpoint"]["stop_grace_period"].removesuffix("s")) > serve.Arguments().timeout + GRACE


def test_the_files_of_tf_serving_exist():
    copied = re.search(r"^COPY (.*) /etc/tf_serving/$", stage("tf-serving"), re.MULTILINE)[1].split()
    assert all((ROOT / name).is_file() for name in copied)
    mounted = {f"/etc/tf_serving/{Path(name).name}" for name in copied}
    named = {word.partition("=")[2] for word in words("tf-serving", "CMD") if "/etc/" in word}
    assert named == mounted

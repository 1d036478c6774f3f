"""`deploy/` against the schemas of Kubernetes, KServe and Grafana, Prometheus's grammar, and the program."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema_rs
import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from benchmarks import memory
from pipelines.core.parsing import parse
from pipelines.verbs import serve
from serving.endpoint.serve import GRACE
from serving.engine.settings import Settings
from serving.http.places import UNREAD
from serving.memory import KEPT
from serving.requests import metrics
from serving.requests.refusals import KINDS, STATUS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SCHEMAS = json.loads((ROOT / "tests" / "schemas" / "kubernetes.json").read_text())
PROMETHEUS = json.loads((ROOT / "tests" / "schemas" / "prometheus.json").read_text())
MANIFESTS = {
    f"{one['kind']}": one for path in sorted(DEPLOY.glob("k*/*.yaml")) for one in yaml.safe_load_all(path.read_text())
}
ENTRYPOINT = json.loads(re.findall(r"^ENTRYPOINT (.*serve.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0])
DASHBOARD = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
ALERTS = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yml").read_text())
SCRAPE = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.yml").read_text())


def problems(manifest):
    name = SCHEMAS["kinds"][f"{manifest['apiVersion']} {manifest['kind']}"]
    validator = jsonschema_rs.validator_for({"$ref": f"#/$defs/{name}", "$defs": SCHEMAS["$defs"]})
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in validator.iter_errors(manifest)]


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_manifest_fits_its_schema(kind):
    assert problems(MANIFESTS[kind]) == []


def test_the_manifests_are_complete():
    assert MANIFESTS.keys() == {
        "Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "ServingRuntime", "InferenceService",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["Deployment", "ServingRuntime"])
def test_a_schema_finds_a_misspelt_field(kind):
    text = json.dumps(MANIFESTS[kind])
    for right, wrong in (("readOnlyRootFilesystem", "readonlyRootFilesystem"), ("timeoutSeconds", "timeout")):
        assert len(problems(json.loads(text.replace(f'"{right}"', f'"{wrong}"')))) >= 1
    assert problems(json.loads(text.replace('"containerPort": ', '"containerPort": "1" , "hostPort":')))


@pytest.mark.parametrize(
    ("schema", "content", "right", "wrong"),
    [
        ("prometheus", SCRAPE, '"metrics_path"', '"metric_path"'),
        ("prometheus", SCRAPE, '"keep"', '"retain"'),
        ("prometheus.rules", ALERTS, '"expr"', '"expression"'),
    ],
)
def test_the_files_for_prometheus_fit_their_schemas(schema, content, right, wrong):
    validator = jsonschema_rs.validator_for(PROMETHEUS[schema])
    assert list(map(str, validator.iter_errors(content))) == []
    text = json.dumps(content)
    assert right in text
    assert not validator.is_valid(json.loads(text.replace(right, wrong)))


def container(kind):
    spec = MANIFESTS[kind]["spec"]
    return (spec["template"]["spec"] if kind == "Deployment" else spec)["containers"][0]


def arguments(kind):
    """Returns the arguments of the endpoint in a container, as the program reads them."""
    one = container(kind)
    program, verb, *rest = [*one.get("command", ENTRYPOINT), *one["args"]]
    assert (program, verb) == ("highway", "serve")
    given = parse(serve.Arguments, rest, "highway serve", "")
    serve._options(given)
    return given


@pytest.mark.parametrize("kind", ["Deployment", "ServingRuntime"])
def test_a_container_runs_the_program(kind, monkeypatch):
    monkeypatch.delenv(serve.API_KEY, raising=False)
    given, one = arguments(kind), container(kind)
    assert (given.host, given.port) == ("0.0.0.0", one["ports"][0]["containerPort"])
    assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert one["securityContext"]["readOnlyRootFilesystem"]
    mounted = {mount["mountPath"] for mount in one["volumeMounts"]}
    assert "/tmp" in mounted
    assert kind != "Deployment" or {str(given.models), str(given.key_file.parent)} <= mounted
    assert {probe: one[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {
        "livenessProbe": "/v2/health/live",
        "readinessProbe": "/v2/health/ready",
    }


def bytes_of(size):
    """Returns the bytes of a size as Kubernetes and Compose write it, in powers of two."""
    number, unit = re.fullmatch(r"(\d+)([MG])i?", size).groups()
    return int(number) * {"M": 2**20, "G": 2**30}[unit]


def memory_bound(cores):
    """Returns the documented bound with the nets that `python -m benchmarks memory` serves, one of them replaced."""
    with (ROOT / "docs" / "benchmarks" / "memory.csv").open(newline="") as file:
        (start,) = [row["high"] for row in csv.DictReader(file) if row["measure"] == "endpoint with four models"]
    settings = Settings(Path(), threads=cores, decoders=cores)
    return memory.bound(round(memory.MB * float(start)), [*memory.NETS, "cifar100"], settings)


@pytest.mark.parametrize("kind", ["Deployment", "ServingRuntime"])
def test_a_container_may_take_the_memory_that_the_endpoint_may_need(kind):
    limits = container(kind)["resources"]["limits"]
    volumes = MANIFESTS[kind]["spec"]
    volumes = (volumes["template"]["spec"] if kind == "Deployment" else volumes)["volumes"]
    # Files in memory count, too.
    files = sum(bytes_of(one["emptyDir"]["sizeLimit"]) for one in volumes if "emptyDir" in one)
    assert bytes_of(limits["memory"]) >= memory_bound(int(limits["cpu"])) + files


def test_the_endpoint_of_compose_may_take_the_memory_that_it_may_need():
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    limits = services["endpoint"]["deploy"]["resources"]["limits"]
    assert bytes_of(limits["memory"]) >= memory_bound(int(limits["cpus"]))


def test_the_documented_terms_of_memory_are_those_of_the_bound():
    page = (ROOT / "docs" / "serving.md").read_text()
    section = re.search(r"^### Memory\n(.*?)^###", page, re.MULTILINE | re.DOTALL)[1]
    stated = [int(number) for number in re.findall(r"^\| .* \| ([\d,]+) \|", section.replace(",", ""), re.MULTILINE)]
    one, none = Settings(Path(), threads=1, decoders=0), Settings(Path(), threads=0, decoders=0)
    fixed = memory.bound(0, [], none)
    assert stated == [
        round(size / memory.MB)
        for size in (
            KEPT,
            memory.bound(0, [], one) - fixed,
            *(memory.NETS[net] for net in ("cifar10", "mnist", "dense")),
            memory.bound(0, [], replace(none, decoders=1)) - fixed,
            none.bodies,
            UNREAD,
            memory.bound(0, [], none, with_grpc=True) - fixed,
            memory.TRIALS,
        )
    ]
    assert fixed == KEPT + none.bodies + UNREAD + memory.TRIALS


def merged(base, patch):
    """Returns a manifest with a strategic merge patch: containers and volumes merge by name, mounts by path."""
    if isinstance(patch, dict):
        return {**base, **{key: merged(base[key], one) if key in base else one for key, one in patch.items()}}
    if not (isinstance(patch, list) and patch and isinstance(patch[0], dict)):
        return patch
    key = "mountPath" if "mountPath" in patch[0] else "name"
    found = {one[key]: one for one in base}
    for one in patch:
        found[one[key]] = merged(found.get(one[key], {}), one)
    return [one for one in found.values() if one.get("$patch") != "delete"]


def test_a_bucket_takes_the_place_of_the_volume(monkeypatch):
    monkeypatch.delenv(serve.API_KEY, raising=False)
    page = (ROOT / "docs" / "operations.md").read_text()
    (patch,) = re.findall(r"^```yaml\n(apiVersion: apps/v1\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    found = merged(MANIFESTS["Deployment"], yaml.safe_load(patch))
    assert problems(found) == []
    pod = found["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["volumes"]] == ["keys", "tmp", "cache"]
    (one,) = pod["containers"]
    program, verb, *words = [*one["command"], *one["args"]]
    given = parse(serve.Arguments, words, "highway serve", "")
    options = serve._options(given)
    assert (program, verb, options.models, options.host) == ("highway", "serve", "s3://BUCKET/models", "0.0.0.0")
    assert {mount["name"] for mount in one["volumeMounts"]} == {"keys", "tmp", "cache"}
    (cache,) = [mount["mountPath"] for mount in one["volumeMounts"] if mount["name"] == "cache"]
    assert one["env"] == [{"name": "XDG_CACHE_HOME", "value": cache}]
    # It has the same words as the image.
    assert [word if word != "s3://BUCKET/models" else "/models" for word in one["command"]] == ENTRYPOINT


def test_requests_have_time_to_finish(monkeypatch):
    monkeypatch.delenv(serve.API_KEY, raising=False)
    pod = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
    program, seconds = container("Deployment")["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    for kind, before, spec in (
        ("Deployment", int(seconds), pod),
        ("ServingRuntime", 0, MANIFESTS["InferenceService"]["spec"]["predictor"]),
    ):
        given = arguments(kind)
        assert spec["terminationGracePeriodSeconds"] >= before + given.drain + given.timeout + GRACE
        # Load balancers notice in this time.
        probe = container(kind)["readinessProbe"]
        assert given.drain > probe["periodSeconds"] * probe["failureThreshold"]


@pytest.mark.parametrize(
    "path", [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()], ids=lambda path: path.name
)
def test_a_file_says_in_itself_that_it_was_not_run(path):
    text = " ".join(path.read_text().replace("#", " ").split())
    assert re.search(r"not run |not been tried|Not built|with stand-ins for .* only", text)


def test_manifests_refer_to_each_other():
    deployment = MANIFESTS["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    target = MANIFESTS["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert target == {key: deployment[key] for key in ("apiVersion", "kind")} | {"name": deployment["metadata"]["name"]}
    model = MANIFESTS["InferenceService"]["spec"]["predictor"]["model"]
    runtime = MANIFESTS["ServingRuntime"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"]["name"] in [one["name"] for one in runtime["spec"]["supportedModelFormats"]]


def test_grafana_knows_every_field_of_the_dashboard():
    """Fields that the SDK does not know are lost when it reads and writes the dashboard."""

    def unknown(given, kept, where=""):
        if isinstance(given, dict):
            for key, value in given.items():
                assert key in (kept if isinstance(kept, dict) else ()), f"{where}.{key} is not a field"
                unknown(value, kept[key], f"{where}.{key}")
        elif isinstance(given, list):
            for number, (one, other) in enumerate(zip(given, kept, strict=True)):
                unknown(one, other, f"{where}[{number}]")
        else:
            assert given == kept, where

    kept = json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(json.dumps(DASHBOARD)))))
    unknown(DASHBOARD, kept)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def _expressions():
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", "1m").replace("$model", "digits")
            yield pytest.param(text, id=f"{panel['title']}-{target['refId']}")
    for rule in ALERTS["groups"][0]["rules"]:
        yield pytest.param(rule["expr"], id=rule["alert"])


def known_labels():
    """Returns the labels of each series of the endpoint, by name."""
    found = {"up": set(), "process_resident_memory_bytes": set(), "process_cpu_seconds_total": set()}
    catalog = SimpleNamespace(problem="", models=dict, loading=False)
    for collector in (*metrics.REGISTRY._collector_to_names, metrics._CatalogCollector(catalog)):
        for family in getattr(collector, "describe", collector.collect)():
            labels = set(getattr(collector, "_labelnames", getattr(family, "_labelnames", ())))
            for suffix in ("", "_total", "_bucket", "_sum", "_count"):
                found[family.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


@pytest.mark.parametrize("text", [*_expressions()])
def test_an_expression_is_valid_and_uses_existing_metrics(text):
    promql_parser.parse(text)
    known = known_labels()
    names = re.findall(r"\b(?:highway|process)_[a-z_]+\b", text) or ["up"]
    scraped = {"job", "instance", "namespace", "pod"}
    for name in names:
        assert name in known
    used = set(re.findall(r"(\w+)=", text)) | {
        one.strip() for group in re.findall(r"by \(([^)]*)\)", text) for one in group.split(",")
    }
    assert used - scraped <= set().union(*(known[name] for name in names))


def test_every_error_of_the_endpoint_itself_raises_an_alert():
    rules = {rule["alert"]: rule["expr"] for rule in ALERTS["groups"][0]["rules"]}
    patterns = [re.findall(r'highway_errors_total{kind=~?"([^"]*)"', text) for text in rules.values()]
    alarming = {kind for (pattern,) in filter(None, patterns) for kind in pattern.split("|")}
    own = {KINDS[error] for error, status in STATUS.items() if status >= 500} | {"failed"}
    # An endpoint that is asked to stop refuses on purpose.
    assert alarming == own - {"draining"}
    # An endpoint that no longer exists has no series that could be 0.
    assert 'absent(up{job="highway"})' in rules["HighwayDown"]


def test_the_scrape_finds_the_pods_of_the_deployment():
    (job,) = SCRAPE["scrape_configs"]
    assert [*SCRAPE["rule_files"]] == ["alerts.yml"]
    keep = job["relabel_configs"][0]
    labels = MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    port = container("Deployment")["ports"][0]["name"]
    assert keep["regex"] == f"{labels['app.kubernetes.io/name']};{port}"
    # The endpoint has a key, also for metrics.
    assert job["authorization"]["credentials_file"]

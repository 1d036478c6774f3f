"""`models.config` of a TF Serving server, for the released versions of a repository."""

import json
from collections.abc import Mapping

from serving.release import Release

NAME = "models.config"
# Path of the repository in the TF Serving container.
BASE = "/models"


def text(releases: Mapping[str, Release], base: str = BASE) -> str:
    """Returns a `ModelServerConfig` for all models of a repository, in protobuf's text format.

    Args:
        releases: the release of each model, by its name; see `serving.release.read_all`.
        base: the repository, as TF Serving finds it: a path or a URL.

    Returns:
        The configuration. For a model without a release, the two newest versions are loaded, so that the previous one
        still answers while endpoints switch. Requests without a version get the newest.

    Example:
        text({"digits": Release(versions=(3, 4), labels={"stable": 3})}, "s3://bucket/models")
    """
    models = (_model(name, releases[name], f"{base}/{name}") for name in sorted(releases))
    return "model_config_list {\n" + "".join(models) + "}\n"


def _model(name: str, served: Release, path: str) -> str:
    lines = [
        f"    name: {_quoted(name)}",
        f"    base_path: {_quoted(path)}",
        '    model_platform: "tensorflow"',
    ]
    if served.versions is None:
        lines.append("    model_version_policy { latest { num_versions: 2 } }")
    else:
        pinned = " ".join(f"versions: {version}" for version in served.versions)
        lines.append(f"    model_version_policy {{ specific {{ {pinned} }} }}")
    lines += [f'    version_labels {{ key: "{label}" value: {version} }}' for label, version in served.labels.items()]
    return "  config {\n" + "\n".join(lines) + "\n  }\n"


def _quoted(name: str) -> str:
    # The text format and JSON escape the characters of folder names in the same way.
    return json.dumps(name, ensure_ascii=False)

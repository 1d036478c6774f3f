"""`models.config` of a TF Serving server, for the released versions of a repository."""

import json
from pathlib import Path

from serving import release, repository

NAME = "models.config"
# Path of the repository in the TF Serving container.
BASE = "/models"


def text(root: Path) -> str:
    """Returns a `ModelServerConfig` for all models of a repository, in protobuf's text format.

    Args:
        root: the repository.

    Returns:
        The configuration. For a model without a release, the two newest versions are loaded, so that the previous one
        still answers while endpoints switch. Requests without a version get the newest.

    Raises:
        ModelError: a release file is damaged.

    Example:
        text(Path("models"))
    """
    return "model_config_list {\n" + "".join(_model(folder) for folder in repository.models(root)) + "}\n"


def _model(folder: Path) -> str:
    served = release.read(folder)
    lines = [
        f"    name: {_quoted(folder.name)}",
        f"    base_path: {_quoted(f'{BASE}/{folder.name}')}",
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

"""`models.config` of a TF Serving server, from what a repository serves."""

from pathlib import Path

from serving import release, repository

NAME = "models.config"
# Where the image of TF Serving finds the repository.
BASE = "/models"


def text(root: Path) -> str:
    """The configuration of all models in a repository, a `ModelServerConfig` in protobuf's text format.

    Args:
        root: the repository.

    Raises:
        ModelError: a release file is damaged.
    """
    return "model_config_list {\n" + "".join(_model(folder) for folder in repository.models(root)) + "}\n"


def _model(folder: Path) -> str:
    served = release.read(folder)
    lines = [f'    name: "{folder.name}"', f'    base_path: "{BASE}/{folder.name}"', '    model_platform: "tensorflow"']
    if served.versions is None:
        lines.append("    model_version_policy { latest { num_versions: 1 } }")
    else:
        pinned = " ".join(f"versions: {version}" for version in served.versions)
        lines.append(f"    model_version_policy {{ specific {{ {pinned} }} }}")
    lines += [f'    version_labels {{ key: "{label}" value: {version} }}' for label, version in served.labels.items()]
    return "  config {\n" + "\n".join(lines) + "\n  }\n"

"""Lists prepared data sets from their JSON files, which takes a fraction of the time that TFDS needs to open them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.data.roots import INFO, KNOWN, OWN, roots

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class ListedData:
    """A data set, prepared or known."""

    name: str
    """Name with its config, or the folder if its files are damaged."""
    where: str
    """Folder of the prepared data set, what is wrong with it, or how to prepare it."""
    version: str = ""
    inputs: str = ""
    """Shape of the inputs."""
    classes: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    """Number of examples by split; empty if it is not prepared."""
    size: int = 0
    """Bytes on disk."""


def listed(data_dir: Path | None) -> list[ListedData]:
    """Lists the known data sets, prepared or not, and then all other prepared ones.

    Args:
        data_dir: the folder of data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.

    Raises:
        UserError: the folder is missing.

    Example:
        [data.name for data in listed(None) if data.counts]
    """
    found = [_read(folder, root) for root, folder in _prepared(data_dir)]
    rows = []
    for name in KNOWN:
        mine = [data for data in found if data.name.split("/")[0] == name]
        hint = "prepared on first use" if name in OWN else f"highway data prepare {name} downloads it"
        rows += mine or [ListedData(name, f"not prepared; {hint}")]
    return rows + [data for data in found if data not in rows]


def _prepared(data_dir: Path | None) -> Iterator[tuple[Path, Path]]:
    """Yields the folders of all prepared data sets, each with the folder of data sets that it is in."""
    for root in roots(OWN[0], data_dir):
        for path in sorted([*root.glob(f"*/*/{INFO}"), *root.glob(f"*/*/*/{INFO}")]):
            if not path.relative_to(root).parts[0].startswith("."):
                yield root, path.parent


def _read(folder: Path, root: Path) -> ListedData:
    try:
        info = json.loads((folder / INFO).read_text("utf-8"))
        features = json.loads((folder / "features.json").read_text("utf-8"))["featuresDict"]["features"]
        counts = {split["name"]: sum(map(int, split["shardLengths"])) for split in info["splits"]}
        return ListedData(
            name="/".join(filter(None, (info["name"], info.get("configName")))),
            where=str(folder),
            version=info["version"],
            inputs=_inputs(features),
            classes=_classes(features),
            counts={split: counts.get(split, 0) for split in SPLITS},
            size=sum(int(split.get("numBytes", 0)) for split in info["splits"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return ListedData(str(folder.relative_to(root)), f"{folder}: cannot be read ({error})")


def _classes(features: dict[str, Any]) -> str:
    """Returns the number of classes; "-" for a regression."""
    label = features.get("label") or features.get("labels", {}).get("sequence", {}).get("feature", {})
    return str(label.get("classLabel", {}).get("numClasses", "-"))


def _inputs(features: dict[str, Any]) -> str:
    """Returns the shape of images or vectors; "various" for images of different sizes, "-" for anything else."""
    kind = features.get("image", {}).get("image") or features.get("features", {}).get("tensor") or {}
    sides = kind.get("shape", {}).get("dimensions", [])
    return "various" if any(int(side) < 0 for side in sides) else " x ".join(sides) or "-"

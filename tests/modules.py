"""The modules of the repository, by name."""

from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("highway_keras", "pipelines", "serving")


@cache
def sources(folders=PACKAGES):
    """Returns the files of the three packages, or of other folders, by module name."""
    found = {}
    for package in folders:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found

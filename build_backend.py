"""Build backend: setuptools, with names in the wheel that collide with no other project's.

The repository calls the program and the endpoint `pipelines` and `serving`, names that users' own projects have too. In
the wheel they are `highway_keras_pipelines` and `highway_keras_serving`: it is built from a copy of the sources in
which the folders, the imports and the entry point have these names. Editable installations and source distributions
keep the names of the repository.

The README, written for the repository, becomes the description on PyPI, where relative links lead nowhere. They become
absolute if `project_urls` in setup.cfg has an address named `Source`; otherwise figures are left out, and links are
plain text.
"""

import re
import shutil
from configparser import ConfigParser
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
]

PACKAGES = {
    "highway_keras": "highway_keras",
    "pipelines": "highway_keras_pipelines",
    "serving": "highway_keras_serving",
}
"""Names of the packages in the wheel, by their names in the repository."""
EXTRAS = ("docs", "predict", "serving", "tracing")
FILES = ("LICENSE", "README.md", "pyproject.toml", "setup.cfg", *(f"requirements/{name}.in" for name in EXTRAS))
# The page of the endpoint shows imports, too, in quotes.
IMPORT = re.compile(rf"^(\s*\"?from )({'|'.join(PACKAGES)})(?=[\w.]* import\b)", re.MULTILINE)
ENTRY_POINT = re.compile(rf"(?<= = )({'|'.join(PACKAGES)})(?=[\w.]*:\w)")
FIGURE = re.compile(r"^!\[[^]]*\]\((?!https?:)[^)]*\)\n\n(?:\*[^*]+\*\n\n)?", re.MULTILINE)
LINK = re.compile(r"(!?)\[([^]]*)\]\((?!https?:)([^)]*)\)")


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Builds the wheel from a copy of the sources; see PEP 517."""
    del metadata_directory  # There is no hook that prepares it.
    target = Path(wheel_directory).resolve()
    with TemporaryDirectory() as folder:
        copy_sources(Path.cwd(), Path(folder))
        with chdir(folder):
            return str(build_meta.build_wheel(str(target), config_settings))


def copy_sources(root: Path, folder: Path) -> None:
    """Copies what the wheel is built from into an empty folder, with the names of the wheel."""
    for name, renamed in PACKAGES.items():
        shutil.copytree(root / name, folder / renamed, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*folder.rglob("*.py"), *folder.rglob("*.js")):
        path.write_text(IMPORT.sub(_renamed, path.read_text(encoding="utf-8")), encoding="utf-8")
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, folder / name)
    settings = ConfigParser(interpolation=None)
    settings.read(root / "setup.cfg", encoding="utf-8")
    text = (root / "setup.cfg").read_text(encoding="utf-8")
    (folder / "setup.cfg").write_text(ENTRY_POINT.sub(lambda match: PACKAGES[match[1]], text), encoding="utf-8")
    urls = dict(line.split(" = ") for line in settings["metadata"]["project_urls"].split("\n") if line)
    readme = (root / "README.md").read_text(encoding="utf-8")
    (folder / "README.md").write_text(description(readme, urls.get("Source")), encoding="utf-8")


def description(readme: str, source: str | None) -> str:
    """Returns the README with absolute links, or without relative ones if the address of the sources is unknown."""
    if source is None:
        return LINK.sub(r"\2", FIGURE.sub("", readme))
    return LINK.sub(lambda match: _absolute(source, *match.groups()), readme)


def _absolute(source: str, mark: str, text: str, path: str) -> str:
    return f"{mark}[{text}]({source}/{'raw' if mark else 'blob'}/main/{path})"


def _renamed(match: re.Match[str]) -> str:
    return match[1] + PACKAGES[match[2]]

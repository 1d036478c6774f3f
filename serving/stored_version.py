"""Versions of models in a bucket: finds them in a listing, and downloads one, checked against its manifest.

In a bucket, a version is a prefix `<model>/<integer>/` with a manifest, which is uploaded last: without it, there is no
version yet. Callers list and read the objects by their own means, and report errors of the store.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from serving import files, manifest, repository, signature
from serving.errors import ModelError, in_bytes
from serving.manifest import Manifest

# Files that are downloaded at the same time, and bytes of each that are in memory; fsspec's own downloads hold hundreds
# of megabytes of a large object.
STREAMS, PIECE = 8, 2**23
# The entry of an object in a listing, such as its size.
T = TypeVar("T")


@dataclass(frozen=True)
class Prefix:
    """Objects of a bucket whose names have the same start, such as those of a version.

    Args:
        url: its URL.
        sizes: size in bytes of each object, by path below the URL.
        read_range: returns the bytes of an object, given by its path, from one position up to another.
    """

    url: str
    sizes: Mapping[str, int]
    read_range: Callable[[str, int, int], bytes]

    def read(self, name: str, limit: int) -> bytes:
        """Returns a small object; if it is too large, one byte more than the limit, so that readers refuse it."""
        size = min(self.sizes[name], limit + 1)
        # A range of an empty object is an error.
        return self.read_range(name, 0, size) if size else b""


def models(objects: Mapping[str, T]) -> dict[str, dict[str, T]]:
    """Returns the objects of each model that has a version, by path below the model.

    Args:
        objects: the listing of a repository, by path below it.

    Example:
        models({"digits/1/manifest.json": 4000, "notes.txt": 7})  # {"digits": {"1/manifest.json": 4000}}
    """
    found: dict[str, dict[str, T]] = {}
    for path, entry in objects.items():
        name, _, below = path.partition("/")
        if repository.is_model_name(name):
            found.setdefault(name, {})[below] = entry
    return {name: below for name, below in found.items() if versions(below)}


def versions(objects: Mapping[str, T]) -> dict[int, dict[str, T]]:
    """Returns the objects of each version of a model, by path below the version; only those with a manifest.

    Args:
        objects: the listing of a model, by path below it.

    Example:
        versions({"1/manifest.json": 4000, "2/model.onnx": 7})  # {1: {"manifest.json": 4000}}
    """
    found: dict[int, dict[str, T]] = {}
    for path, entry in objects.items():
        number, _, below = path.partition("/")
        if repository.is_version(number):
            found.setdefault(int(number), {})[below] = entry
    return {number: below for number, below in found.items() if manifest.NAME in below}


def description(version: Prefix) -> dict[str, bytes]:
    """Returns the manifest of a version and its signature, if it has one, by name."""
    limits = {manifest.NAME: signature.MANIFEST, signature.NAME: signature.SIZE}
    return {name: version.read(name, limit) for name, limit in limits.items() if name in version.sizes}


def download(
    version: Prefix,
    described: Mapping[str, bytes],
    folder: Path,
    check: Callable[[Path, Manifest], None] | None = None,
) -> None:
    """Downloads the files that the manifest of a version lists, and checks them.

    Args:
        version: the version.
        described: its `description`, written to the folder too.
        folder: an empty folder; after an error, it holds some of the files.
        check: refuses, by a `ModelError`, a manifest before its files are downloaded.

    Raises:
        ModelError: the manifest is damaged, or a file is missing or differs from it; the message has the URL.

    Example:
        aside = Path("aside")
        aside.mkdir()
        download(version, description(version), aside)
    """
    try:
        for name, content in described.items():
            (folder / name).write_bytes(content)
        listed = manifest.read(folder)
        if check:
            check(folder, listed)
        _check_sizes(version, listed)
        with ThreadPoolExecutor(STREAMS) as pool:
            list(pool.map(lambda name: _get(version, name, folder / name), listed.files))
        files.verify(folder, listed)
    except ModelError as error:
        raise ModelError(str(error).replace(str(folder), version.url)) from error


def _check_sizes(version: Prefix, listed: Manifest) -> None:
    """Refuses a version before anything large is read."""
    for name, record in listed.files.items():
        size = version.sizes.get(name)
        if size != record.size:
            raise ModelError(
                f"{version.url}/{name} {'is missing' if size is None else f'has {in_bytes(size)}'}, and the manifest "
                f"says {in_bytes(record.size)}: the version has not been uploaded completely. Upload it again, and its "
                "manifest last."
            )


def _get(version: Prefix, name: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    size = version.sizes[name]
    with path.open("wb") as file:
        for start in range(0, size, PIECE):
            file.write(version.read_range(name, start, min(start + PIECE, size)))
        file.flush()
        # Or a power failure could leave a version that looks complete.
        os.fsync(file.fileno())

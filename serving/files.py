"""Sizes and SHA-256 digests: a version is whole, or it is refused."""

import hashlib
from pathlib import Path

from serving import manifest
from serving.errors import ModelError


def digest(path: Path) -> manifest.File:
    """Size and SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return manifest.File(size=file.tell(), sha256=sha256)


def digests(folder: Path) -> dict[str, manifest.File]:
    """Size and SHA-256 of every file in a version folder but the manifest, by its path in the folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: digest(path) for name, path in names.items() if name != manifest.NAME}


def verify(folder: Path, content: manifest.Manifest) -> None:
    """Compares every file that a manifest lists with what lies on disk.

    Args:
        folder: the version.
        content: its manifest.

    Raises:
        ModelError: if a file is missing or differs in size or content; the message names it.

    Example:
        verify(folder, manifest.read(folder))
    """
    for name, expected in content.files.items():
        path = folder / name
        try:
            found = digest(path)
        except FileNotFoundError:
            raise ModelError(f"{path} is missing: the model version is incomplete. Export it again.") from None
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
        if found.size != expected.size:
            raise ModelError(
                f"{path} is damaged: it has {found.size} bytes, the manifest says {expected.size}. "
                "Export the model again, or restore the file from a copy."
            )
        if found.sha256 != expected.sha256:
            raise ModelError(
                f"{path} is damaged: its SHA-256 is {found.sha256[:12]}..., the manifest says "
                f"{expected.sha256[:12]}... Export the model again, or restore the file from a copy."
            )

"""Sizes and SHA-256 digests of the files in a version."""

import hashlib
from collections.abc import Collection
from pathlib import Path

from serving import manifest, regular_files, signature
from serving.errors import ModelError, in_bytes
from serving.package import again


def digest(path: Path) -> manifest.FileRecord:
    """Returns size and SHA-256 of a regular file, read in pieces."""
    with regular_files.open_regular(path) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return manifest.FileRecord(size=file.tell(), sha256=sha256)


def digests(folder: Path) -> dict[str, manifest.FileRecord]:
    """Returns size and SHA-256 of every file in a version folder except the manifest and its signature, by path."""
    return {name: digest(folder / name) for name in sorted(_names(folder))}


def verify(
    folder: Path, content: manifest.Manifest, keep: Collection[str] = (), *, closed: bool = False
) -> dict[str, bytes]:
    """Checks every file that a manifest lists.

    Args:
        folder: the version.
        content: its manifest.
        keep: names of files to return, so that the checked bytes are used, whatever happens to the folder meanwhile.
        closed: whether to refuse files that the manifest does not list.

    Returns:
        The contents of the files in `keep` that the manifest lists, by name.

    Raises:
        ModelError: a file is missing or differs in size or content; the message names it.

    Example:
        verify(folder, manifest.read(folder))
    """
    kept = {}
    for name, expected in content.files.items():
        path = folder / name
        try:
            found = manifest.FileRecord(size=regular_files.size(path), sha256=expected.sha256)
            if found.size == expected.size:
                if name in keep:
                    kept[name] = regular_files.read(path, expected.size)
                    found = manifest.FileRecord(size=len(kept[name]), sha256=hashlib.sha256(kept[name]).hexdigest())
                else:
                    found = digest(path)
        except FileNotFoundError:
            raise ModelError(f"{path} is missing: the model version is incomplete. {again(path)}.") from None
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
        if found.size != expected.size:
            raise ModelError(
                f"{path} is damaged: it has {in_bytes(found.size)}, the manifest says {expected.size:,}. "
                f"{again(path)}, or restore the file from a copy."
            )
        if found.sha256 != expected.sha256:
            raise ModelError(
                f"{path} is damaged: its SHA-256 is {found.sha256[:12]}..., the manifest says "
                f"{expected.sha256[:12]}... {again(path)}, or restore the file from a copy."
            )
    if closed and (added := sorted(_names(folder) - content.files.keys())):
        raise ModelError(f"{folder / added[0]} is not in the manifest: it was added after the export. Remove it.")
    return kept


def _names(folder: Path) -> set[str]:
    # Including links to folders, which TF Serving would follow.
    paths = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix() for path in paths} - {manifest.NAME, signature.NAME}

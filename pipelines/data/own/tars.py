"""Tar files in the form of WebDataset: members `KEY.png` and `KEY.cls`, or `KEY.json` with a label."""

import json
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pipelines.core.console import printable
from pipelines.core.errors import UserError
from pipelines.core.files import has_more
from pipelines.data.own import label_sets
from pipelines.data.own.item import SUFFIXES, Item, Split, is_hidden, name_of, split_in

# Fields of a JSON member that may hold the label.
FIELDS = ("label", "cls", "class", "class_name")
# First bytes of files of gzip, bzip2, xz and Zstandard.
HEAD, COMPRESSED = 6, (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")


def matches(path: Path) -> bool:
    """Returns whether the data are a tar file, or a folder of them."""
    return (path.is_file() and path.suffix == ".tar") or (path.is_dir() and bool(_files(path)))


def items(path: Path, group: str | None) -> Iterator[Item]:
    """Lists the images of tar files. Files named after a split (`train-0000.tar`) or in such a folder belong to it.

    Args:
        path: the file, or the folder.
        group: must be None.

    Raises:
        UserError: a file is damaged, or an image has no label or a dot in its name.
    """
    if group is not None:
        raise UserError(f"only tables have groups of images, and {path} holds tar files. Received: group={group}.")
    for file in _files(path) if path.is_dir() else [path]:
        yield from _members(file, split_in(file.relative_to(path) if path.is_dir() else Path(file.name)))


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*.tar") if not is_hidden(file.relative_to(folder)))


def _members(file: Path, split: Split | None) -> Iterator[Item]:
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, str | tuple[str, ...]] = {}
    # Such as KEY.mask.png, next to KEY.png.
    further: dict[str, str] = {}
    try:
        with tarfile.open(file, "r:") as tar:
            for member in tar:
                # The key ends at the first dot of the last part.
                folder, slash, last = member.name.rpartition("/")
                stem, _, extension = last.partition(".")
                key = f"{folder}{slash}{stem}"
                # Hidden ones are those that macOS adds: its ._1.png is no image.
                if not member.isfile() or is_hidden(Path(member.name)):
                    continue
                if f".{extension.lower()}" in SUFFIXES:
                    images[key] = member
                elif Path(extension).suffix.lower() in SUFFIXES:
                    further[key] = member.name
                elif extension in ("cls", "json"):
                    labels[key] = _label(extension, tar.extractfile(member).read(), f"{member.name} in {file}")  # type: ignore[union-attr]
            goes_on = has_more(tar)
    except (tarfile.TarError, OSError, EOFError) as error:
        if isinstance(error, tarfile.ReadError) and _is_compressed(file):
            raise UserError(
                f"the tar file {file} is compressed, and images are read at their places in it. Decompress it."
            ) from error
        raise UserError(f"the tar file {file} is damaged: {error}. Write it again.") from error
    if goes_on:
        raise UserError(
            f"{file} goes on after the end of its archive, like tar files joined by cat, of which only the first would "
            "be read. Put the separate files into a folder, and name that."
        )
    if alone := next((name for key, name in further.items() if key not in images), None):
        raise UserError(
            f"{printable(alone)} in {file} has a dot in its name, and WebDataset ends names at the first one. Write "
            "another character in its place, also in the name of its label."
        )
    for key, member in images.items():
        if key not in labels:
            raise UserError(
                f"{member.name} in {file} has no label. Expected {key}.cls, or {key}.json with a field label."
            )
        name = printable(f"{file.name}:{member.name}")
        yield Item(name, labels[key], partial(_read, file, member.offset_data, member.size), split)


def _is_compressed(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(HEAD).startswith(COMPRESSED)


def _label(extension: str, content: bytes, where: str) -> str | tuple[str, ...]:
    try:
        text = content.decode()
        if extension == "cls":
            return name_of(text)
        found = json.loads(text)
    except ValueError as error:
        raise UserError(f"{where} cannot be read: {error}. Correct or remove it.") from error
    for field in FIELDS:
        if isinstance(found, dict) and field in found:
            return label_sets.label_of(found[field], where)
    raise UserError(f"{where} has no label. Expected one of the fields {', '.join(FIELDS)}.")


def _read(file: Path, start: int, size: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(size)

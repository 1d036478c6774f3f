"""Folders with a subfolder for each class: `CLASS/*.png`, or `train/CLASS/*.png` and so on."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pipelines.core.console import printable
from pipelines.core.errors import UserError
from pipelines.data.own.item import SPLITS, SUFFIXES, Item, Split, is_hidden, name_of


def matches(path: Path) -> bool:
    """Returns whether the data are a folder; other formats of folders are recognized before."""
    return path.is_dir()


def items(path: Path, group: str | None) -> Iterator[Item]:
    """Lists the images of a folder.

    Args:
        path: the folder.
        group: must be None, because a folder has no columns.

    Raises:
        UserError: an image is in no subfolder for its class, splits are inside the classes, or a group is asked for.
    """
    if group is not None:
        raise UserError(f"only tables have groups of images, and {path} is a folder. Received: group={group}.")
    folders, by_split = _folders(path), _splits(path)
    if by_split and len(by_split) < len(folders):
        other = next(one.name for one in folders if one not in by_split)
        raise UserError(
            f"{path} has folders for splits ({', '.join(one.name for one in by_split)}) and another folder, {other}. "
            "Move the images of each split into train, validation or test."
        )
    if by_split:
        for folder, split in by_split.items():
            yield from _classes(path, folder, split)
    else:
        yield from _classes(path, path, None)


def passed_over(path: Path) -> list[str]:
    """Counts the files of a folder that are no images by their suffixes, and names folders that hold nothing else.

    Args:
        path: the folder, of which `items` has listed the images.

    Returns:
        A sentence, or none if all files are images.
    """
    suffixes: Counter[str] = Counter()
    empty = []
    for label in (one for folder in _splits(path) or (path,) for one in _folders(folder)):
        files = [*_files(label, frozenset({path.resolve()}))]
        others = [file for file in files if not _is_image(file)]
        suffixes.update(file.suffix.lower() or "without a suffix" for file in others)
        if others and len(others) == len(files):
            empty.append(printable(str(label.relative_to(path))))
    if not suffixes:
        return []
    ranked = sorted(suffixes.items(), key=lambda pair: (-pair[1], pair[0]))
    counts = ", ".join(f"{count:,} {suffix}" for suffix, count in ranked)
    classes = f"; folders without images, which are no classes: {', '.join(empty)}" if empty else ""
    return [printable(f"files that are no images: {counts}{classes}.")]


def _splits(path: Path) -> dict[Path, Split]:
    return {one: SPLITS[one.name.lower()] for one in _folders(path) if one.name.lower() in SPLITS}


def _classes(root: Path, folder: Path, split: Split | None) -> Iterator[Item]:
    """Yields the images in the subfolders of a folder, at any depth."""
    if loose := next(filter(_is_image, sorted(folder.iterdir())), None):
        raise UserError(
            f"{loose} is in no folder for its class. Expected {folder}/CLASS/{loose.name}, or a table with a column of "
            "paths and a column of labels."
        )
    labels = _folders(folder)
    for label in labels:
        if split is None:
            _refuse_splits_inside(label, is_only=len(labels) == 1)
        for file in filter(_is_image, sorted(_files(label, frozenset({root.resolve()})))):
            yield Item(printable(str(file.relative_to(root))), name_of(label.name), file.read_bytes, split)


def _files(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    """Yields the files in a folder at any depth, also in linked folders, unless one holds a folder of `above`."""
    above |= {folder.resolve()}
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            if is_hidden(Path(entry.name)):
                continue
            if not _is_folder(entry):
                yield path
            elif not (entry.is_symlink() and any(one.is_relative_to(path.resolve()) for one in above)):
                yield from _files(path, above)


def _refuse_splits_inside(label: Path, is_only: bool) -> None:
    """Refuses the folder of a class that is divided into splits, because its test images would be trained on.

    A folder `train` alone does not divide it: it may hold trains. A folder `test` does if images are next to it.
    """
    inside = [one for one in _folders(label) if one.name.lower() in SPLITS]
    splits = {SPLITS[one.name.lower()] for one in inside}
    if len(splits) < 2 and not (splits - {"train"} and any(map(_is_image, label.iterdir()))):
        return
    named = ", ".join(one.name for one in inside)
    problem = f"folders for splits ({named})" if inside[1:] else f"images next to a folder for a split ({named})"
    advice = f"Expected splits above the classes: {label.parent / inside[0].name / label.name}."
    if is_only and any(map(_folders, inside)):
        # Such as the one folder that an archive was unpacked to.
        advice = f"It is the only folder in {label.parent}: name {label} itself."
    raise UserError(f"{label} has {problem}. {advice}")


def _folders(path: Path) -> list[Path]:
    # Entries know whether they are folders; asking for each of many images would take long.
    with os.scandir(path) as entries:
        return sorted(Path(one.path) for one in entries if _is_folder(one) and not is_hidden(Path(one.name)))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # Unlike that of an entry, this `is_dir` returns False for a link to itself.
    return Path(entry.path).is_dir() if entry.is_symlink() else entry.is_dir()


def _is_image(path: Path) -> bool:
    if path.suffix.lower() not in SUFFIXES or is_hidden(Path(path.name)):
        return False
    # A link whose target is missing, as of content that is kept elsewhere and not fetched, counts as damaged.
    return path.is_file() or (path.is_symlink() and not path.exists())

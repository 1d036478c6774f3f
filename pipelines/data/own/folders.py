"""Folders with a subfolder for each class: `CLASS/*.png`, or `train/CLASS/*.png` and so on."""

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
        UserError: images are not in a subfolder for their class, splits are inside of classes, or a group is asked for.
    """
    if group is not None:
        raise UserError(f"only tables have groups of images, and {path} is a folder. Received: group={group}.")
    folders = _folders(path)
    by_split = {one: SPLITS[one.name.lower()] for one in folders if one.name.lower() in SPLITS}
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


def _classes(root: Path, folder: Path, split: Split | None) -> Iterator[Item]:
    """Yields the images in the subfolders of a folder, at any depth."""
    if loose := next(filter(_is_image, sorted(folder.iterdir())), None):
        raise UserError(
            f"{loose} is in no folder for its class. Expected {folder}/CLASS/{loose.name}, or a table with a column of "
            "paths and a column of labels."
        )
    for label in _folders(folder):
        inside = [one.name for one in _folders(label) if one.name.lower() in SPLITS]
        if split is None and len({SPLITS[name.lower()] for name in inside}) > 1:
            raise UserError(
                f"{label} has folders for splits ({', '.join(inside)}). Expected them above the classes: "
                f"{root}/{inside[0]}/{label.name}."
            )
        for file in filter(_is_image, sorted(label.rglob("*"))):
            if not is_hidden(file.relative_to(label)):
                yield Item(printable(str(file.relative_to(root))), name_of(label.name), file.read_bytes, split)


def _folders(path: Path) -> list[Path]:
    return [one for one in sorted(path.iterdir()) if one.is_dir() and not is_hidden(Path(one.name))]


def _is_image(path: Path) -> bool:
    # A link whose target is missing, as of content that is kept elsewhere and not fetched, counts as damaged.
    is_file = path.is_file() or (path.is_symlink() and not path.exists())
    return path.suffix.lower() in SUFFIXES and is_file and not is_hidden(Path(path.name))

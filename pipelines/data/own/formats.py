"""Formats of the user's own data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.core.errors import UserError
from pipelines.data.own import arrays, arrow, folders, label_sets, tables, tars
from pipelines.data.own.item import Item


@dataclass(frozen=True)
class DataFormat:
    """A format of labelled images."""

    name: str
    """Name in messages."""
    matches: Callable[[Path], bool]
    """Returns whether a path has this format."""
    items: Callable[[Path, str | None], Iterator[Item]]
    """Lists the images of a path, given the name of a column of groups or None."""


# The first that matches is taken.
FORMATS = (
    DataFormat("NumPy arrays (.npz)", arrays.matches, arrays.items),
    DataFormat("a table of images (.csv, .tsv, .parquet)", tables.matches, tables.items),
    DataFormat("a data set saved by Hugging Face's datasets", arrow.matches, arrow.items),
    DataFormat("tar files of WebDataset", tars.matches, tars.items),
    DataFormat("a folder with a subfolder for each class", folders.matches, folders.items),
)


def passed_over(path: Path) -> list[str]:
    """Returns a sentence about the files of a folder that are no images, if there are any; see `find_items`.

    Args:
        path: file or folder, of which the images have been listed.
    """
    return folders.passed_over(path) if format_of(path).matches is folders.matches else []


def format_of(path: Path) -> DataFormat:
    """Returns the format of data.

    Args:
        path: file or folder.

    Raises:
        UserError: nothing is there, or the format is unknown.
    """
    found = next((one for one in FORMATS if one.matches(path)), None) if path.exists() else None
    if found is None:
        problem = "has none of the formats that are read" if path.exists() else "does not exist"
        *names, last = (one.name for one in FORMATS)
        raise UserError(f"{path} {problem}. Expected {', '.join(names)}, or {last}.")
    return found


def find_items(path: Path, group: str | None = None, separator: str | None = None) -> list[Item]:
    """Lists the labelled images of data in any format.

    Args:
        path: file or folder.
        group: column, or array, with the group of each image; None for no groups.
        separator: text between the classes in a label; None if a label is one class, or a list.

    Returns:
        The images, in a fixed order.

    Raises:
        UserError: nothing is there, the format is unknown, there is no image, or an image has no label or split.

    Example:
        {item.label for item in find_items(Path("shapes"))}  # {"circle", "square", "triangle"}
    """
    data_format = format_of(path)
    found = list(data_format.items(path, group))
    if not found:
        raise UserError(f"there are no images in {path}, read as {data_format.name}. Check the path.")
    if separator is None and (unlabelled := next((item.name for item in found if item.label == ""), None)):
        raise UserError(f"{unlabelled} has no label. Complete or remove it.")
    if separator is not None or any(isinstance(item.label, tuple) for item in found):
        found = [replace(item, label=_classes(item, separator)) for item in found]
    split = [item for item in found if item.split is not None]
    if split and len(split) < len(found):
        without = next(item.name for item in found if item.split is None)
        raise UserError(
            f"{split[0].name} belongs to the split {split[0].split}, and {without} to none. Name all or none."
        )
    return found


def _classes(item: Item, separator: str | None) -> tuple[str, ...]:
    if isinstance(item.label, tuple) or separator is None:
        return item.labels
    return label_sets.split(item.label, separator)

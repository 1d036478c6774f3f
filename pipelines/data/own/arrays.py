"""Arrays in an `.npz` file: images and labels, of one split or of several."""

import zipfile
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from pipelines.core.errors import UserError
from pipelines.data.own.item import SPLITS, Item, Split, name_of

# Names of the two arrays of a split.
PAIRS = (("images", "labels"), ("x", "y"), ("X", "y"), ("arr_0", "arr_1"))
# What the names of arrays end in, such as x_train.
ENDS: dict[str, Split | None] = {"": None, **{f"_{word}": split for word, split in SPLITS.items()}}


def matches(path: Path) -> bool:
    """Returns whether the data are a file of arrays."""
    return path.is_file() and path.suffix.lower() == ".npz"


def items(path: Path, group: str | None) -> Iterator[Item]:
    """Lists the images of an array.

    Args:
        path: the file, with arrays such as `x` and `y`, `images` and `labels`, or `x_train`, `y_train`, `x_test` and
            `y_test`. Images are uint8 `[n, h, w]` or `[n, h, w, channels]`; labels are integers or names, `[n]`.
        group: name of an array of groups, `[n]`, if there is one split; None for no groups.

    Raises:
        UserError: the file cannot be read, its arrays are not images and labels, a split has two pairs of them, or one
            without the other.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} cannot be read as NumPy arrays: {error}. Write it with numpy.savez, without objects."
        ) from error
    for split, images, labels in _pairs(arrays, path):
        groups = None if group is None else arrays.get(group)
        if group is not None and (groups is None or groups.shape[:1] != images.shape[:1]):
            raise UserError(f"{path} has no array {group!r} with a group for each image. It has: {_listed(arrays)}.")
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            name = f"{split or 'image'} {number}"
            owner = None if groups is None else name_of(groups[number]) or None
            yield Item(name, name_of(label), partial(_same, image), split, owner)


def _pairs(arrays: dict[str, np.ndarray], path: Path) -> Iterator[tuple[Split | None, np.ndarray, np.ndarray]]:
    found: dict[Split | None, tuple[str, str]] = {}
    alone: list[str] = []
    for (end, split), (first, second) in product(ENDS.items(), PAIRS):
        images, labels = f"{first}{end}", f"{second}{end}"
        if not {images, labels} <= arrays.keys():
            alone += [name for name in (images, labels) if split and name in arrays]
        elif split in found:
            raise UserError(
                f"{path} has two pairs of images and labels{f' for the split {split}' if split else ''}: "
                f"{' and '.join(found[split])}, {images} and {labels}. Join them, or remove one."
            )
        else:
            found[split] = images, labels
    if not found or (None in found and len(found) > 1):
        raise UserError(
            f"{path} has no pair of images and labels, such as x and y, or x_train, y_train, x_test and y_test. "
            f"It has: {_listed(arrays)}."
        )
    paired = {name for pair in found.values() for name in pair}
    if lone := next((name for name in alone if name not in paired), None):
        raise UserError(
            f"{path} has {lone} without its counterpart, and images and labels of a split belong together, such as "
            f"x_test and y_test. Complete, rename or remove it. It has: {_listed(arrays)}."
        )
    for split, (images, labels) in found.items():
        pixels, classes = arrays[images], arrays[labels]
        # As in `keras.datasets`.
        flat = classes[:, 0] if classes.ndim == 2 and classes.shape[1] == 1 else classes
        if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or flat.shape != pixels.shape[:1]:
            raise UserError(
                f"images must be uint8 [n, height, width] or [n, height, width, channels], from 0 to 255, and labels "
                f"[n]. {path} has: {_listed(arrays)}."
            )
        yield split, pixels, flat


def _listed(arrays: dict[str, np.ndarray]) -> str:
    return ", ".join(f"{name} ({array.dtype} {list(array.shape)})" for name, array in arrays.items()) or "nothing"


def _same(content: np.ndarray) -> np.ndarray:
    return content

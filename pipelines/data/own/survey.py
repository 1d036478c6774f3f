"""Reads every image of the user's own data once, assigns it to a split, and finds problems of the data."""

import hashlib
import io
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from PIL import Image

from pipelines.core.errors import UserError
from pipelines.data.own import column_notes
from pipelines.data.own.item import Content, Item, Split, are_identifiers, in_order
from serving import image_files
from serving.errors import ImageError, LimitError

# Images handed to the threads at a time; their results are kept in order.
CHUNK = 64
# Names in a message.
SHOWN = 3
# Ratio of the largest class to the smallest from which it is mentioned.
IMBALANCE = 10
# Shares of validation and test if the data assign no splits.
VALIDATION, TEST = 0.1, 0.2
# Least number of images of a class with which each split gets at least one of them.
FEW = 3


@dataclass(frozen=True)
class SurveyedImage:
    """An image that can be decoded."""

    item: Item
    digest: str
    """SHA-256 of its content."""
    size: tuple[int, int]
    """Height and width."""
    is_grey: bool
    """True if red, green and blue are equal everywhere."""


@dataclass(frozen=True)
class Survey:
    """All images of the data."""

    images: Sequence[SurveyedImage]
    damaged: Sequence[str]
    """A sentence for each image that cannot be decoded."""
    passed_over: Sequence[str] = ()
    """A sentence about files that are no images, if there are any; see `formats.passed_over`."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes: in the order of numbers if all are numbers, else by name."""
        return in_order({label for image in self.images for label in image.item.labels})

    @property
    def multi_label(self) -> bool:
        """True if an image may have any number of classes."""
        return any(isinstance(image.item.label, tuple) for image in self.images)

    @property
    def is_grey(self) -> bool:
        """True if no image has colours."""
        return all(image.is_grey for image in self.images)


def survey(items: Sequence[Item], progress: Callable[[int], None] = lambda _: None) -> Survey:
    """Decodes every image once.

    Args:
        items: the images.
        progress: called with the number of images since the last call.

    Returns:
        The images in order, without the damaged ones.

    Example:
        survey(find_items(Path("shapes"))).damaged
    """
    images: list[SurveyedImage] = []
    damaged: list[str] = []
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        for start in range(0, len(items), CHUNK):
            # Read here, because some data can be read in order only; decoded in the threads.
            part = [(item, _content(item)) for item in items[start : start + CHUNK]]
            for found in executor.map(_surveyed, part):
                if isinstance(found, str):
                    damaged.append(found)
                else:
                    images.append(found)
            progress(len(items[start : start + CHUNK]))
    return Survey(images, damaged)


def pixels(content: Content, name: str, side: int = image_files.SIDE) -> np.ndarray:
    """Decodes an image as the endpoint does.

    Args:
        content: the encoded file, or pixels.
        name: used in messages.
        side: length of the shorter side that is enough; see `serving.image_files.reduction`.

    Returns:
        uint8 [height, width, 4].

    Raises:
        ImageError: the image is damaged or has an unusual shape.
    """
    if isinstance(content, bytes):
        return image_files.decode(content, name, side=side)
    channels = 1 if content.ndim == 2 else content.shape[-1]
    if channels not in (1, 3, 4) or not content.size:
        raise ImageError(f"{name} has the shape {list(content.shape)}. Expected 1, 3 or 4 channels.")
    colours = content.reshape(*content.shape[:2], channels)
    opaque = np.full((*colours.shape[:2], 1), 255, np.uint8)
    rgba = colours if channels == 4 else np.concatenate([np.broadcast_to(colours, (*colours.shape[:2], 3)), opaque], -1)
    return image_files.shrunk(np.ascontiguousarray(rgba), side)


def assign(images: Sequence[SurveyedImage], validation: float = VALIDATION, test: float = TEST) -> list[Split]:
    """Assigns images to splits.

    A hash of the image, or of its group, is its place between 0 and 1; the lowest places are the test split, the next
    ones the validation split. Images of the same content or group therefore share a split, and it does not change when
    images are added. Otherwise an image is moved only if a split would get none of its class.

    Args:
        images: the images; if the data have splits, these are kept.
        validation: share of the validation split.
        test: share of the test split.

    Returns:
        The split of each image.
    """
    if images and images[0].item.split is not None:
        return [image.item.split or "train" for image in images]
    return assign_keys(keys(images), [image.item.labels for image in images], validation, test)


def keys(images: Sequence[SurveyedImage]) -> list[str]:
    """Returns what images of one split have in common: the group of each, or the digest of its content without one."""
    return [image.digest if image.item.group is None else image.item.group for image in images]


def assign_keys(
    keys: Sequence[str], labels: Sequence[tuple[str, ...]], validation: float = VALIDATION, test: float = TEST
) -> list[Split]:
    """Assigns examples to splits as `assign` does.

    Args:
        keys: digest of the content of each example, or its group.
        labels: classes of each example; the same for all of a regression.
        validation: share of the validation split.
        test: share of the test split.

    Returns:
        The split of each example.
    """
    places = {key: _place(key) for key in keys}
    found = {key: _split(place, validation, test) for key, place in places.items()}
    members: dict[str, set[str]] = defaultdict(set)
    classes: dict[str, set[str]] = defaultdict(set)
    for names, key in zip(labels, keys, strict=True):
        classes[key].update(names)
        for label in names:
            members[label].add(key)
    shares: dict[Split, float] = {"train": 1.0, "test": test, "validation": validation}
    wanted = [split for split, share in shares.items() if share]

    def is_last(key: str, label: str) -> bool:
        """Returns whether an example, or a group, alone represents one of its other classes in its split."""
        others = classes[key] - {label}
        return any(sum(found[one] == found[key] for one in members[other]) == 1 for other in others)

    for label, own in members.items():
        for split in wanted if len(own) >= FEW else wanted[:1]:
            held = Counter(found[key] for key in own)
            if not held[split]:
                spare = [key for key in own if held[found[key]] > 1 or len(own) < FEW]
                # Better a class missing from the test split than another one missing from training.
                kept = [key for key in spare if not is_last(key, label)] or (spare if split == "train" else ())
                if kept:
                    found[(max if split == "train" else min)(kept, key=places.__getitem__)] = split
    return [found[key] for key in keys]


def held_out(
    splits: Sequence[Split], keys: Sequence[str], labels: Sequence[tuple[str, ...]], count: int
) -> list[Split]:
    """Holds out training examples for validation if some of them belong together, and there is no validation split.

    Groups and copies stay together, as in `assign`, so that the number is only about the one asked for. Examples that
    all stand alone are left to `sources`, which holds out the exact number.

    Args:
        splits: the split of each example.
        keys: digest of the content of each example, or its group.
        labels: classes of each example.
        count: number of examples to hold out.

    Returns:
        The split of each example.

    Raises:
        UserError: there are too few groups to hold one out.
    """
    train = [number for number, split in enumerate(splits) if split == "train"]
    own = [keys[number] for number in train]
    if not 0 < count < len(own) or "validation" in splits or len({*own}) == len(own):
        return [*splits]
    assigned = assign_keys(own, [labels[number] for number in train], count / len(own), 0)
    if "validation" not in assigned:
        raise UserError(
            f"--validation {count} would separate examples of one group, or copies: there are too few others. Move "
            "some into a validation split, or leave out --validation."
        )
    found = [*splits]
    for number, split in zip(train, assigned, strict=True):
        found[number] = split
    return found


def refuse_divided(groups: Iterable[str | None], splits: Iterable[Split]) -> None:
    """Refuses splits of the data that divide a group.

    Args:
        groups: the group of each example; None for one without.
        splits: the split of each example.

    Raises:
        UserError: examples of one group are in two splits.
    """
    first: dict[str, Split] = {}
    divided = dict.fromkeys(
        group
        for group, split in zip(groups, splits, strict=True)
        if group is not None and first.setdefault(group, split) != split
    )
    if divided:
        raise UserError(
            f"--group keeps a group in one split, and the data name two splits for {len(divided):,}: "
            f"{', '.join(_some([*divided]))}. Correct the splits, or leave out --group."
        )


def refuse(found: Survey, splits: Sequence[Split], skip_damaged: bool) -> None:
    """Refuses data from which no classifier can be trained.

    Args:
        found: the images.
        splits: the split of each image.
        skip_damaged: whether damaged images are left out.

    Raises:
        UserError: images are damaged, there are fewer than two classes or nearly as many as images, a class has no
            training images, or a group is in two splits.
    """
    if found.damaged and not skip_damaged:
        raise UserError(
            f"{len(found.damaged):,} of {len(found.damaged) + len(found.images):,} images cannot be read:\n  "
            + "\n  ".join(_some(found.damaged))
            + "\nRepair or remove them, or leave them out with --skip-damaged."
        )
    labels = found.labels
    if len(labels) < 2:
        have = f"all images have the label {labels[0]!r}" if labels else "no image has a label"
        # Such as the one folder that an archive was unpacked to.
        paths = [image.item.name.split("/") for image in found.images]
        inner = {parts[1] for parts in paths if len(parts) > 2 and parts[0] in labels}
        advice = "Add images of others." if len(inner) < 2 else "Name the folder whose folders are the classes."
        raise UserError(f"{have}, and a classifier needs two classes or more. {advice}")
    # An image may have many tags, so that there may be more of them than images.
    if are_identifiers(len(labels), sum(len(image.item.labels) for image in found.images)):
        raise UserError(
            f"{len(found.images):,} images have {len(labels):,} different labels, too many for classes. "
            "Check the labels: nets of images predict classes, not numbers."
        )
    counts = _counts(found, splits)
    if missing := [label for label in labels if not counts["train"][label]]:
        raise UserError(f"{_classes(missing)} without training images. Add some, or move some into that split.")
    refuse_divided((image.item.group for image in found.images), splits)


def notes(found: Survey, splits: Sequence[Split]) -> Iterator[str]:
    """Yields a sentence for each peculiarity of data from which a classifier can be trained.

    Args:
        found: the images.
        splits: the split of each image.
    """
    counts = _counts(found, splits)
    total = sum(counts.values(), Counter())
    ranked = total.most_common()
    if none := sum(not image.item.labels for image in found.images):
        yield f"images without a class: {none:,}."
    if ranked and ranked[0][1] >= IMBALANCE * ranked[-1][1]:
        (largest, most), (smallest, least) = ranked[0], ranked[-1]
        yield f"{largest} has {most:,} images and {smallest} has {least:,}: a net will prefer common classes."
    if alike := column_notes.variants(found.labels):
        yield f"there are classes that differ only in case: {alike}. Give them one name if they are one class."
    if found.damaged:
        yield f"damaged images, which are left out: {len(found.damaged):,}."
    yield from found.passed_over
    if not counts["test"]:
        yield "there is no test split, so the accuracy on new images cannot be measured."
    for split in ("validation", "test"):
        missing = [label for label in found.labels if counts[split] and not counts[split][label]]
        if missing:
            yield f"{_classes(missing)} without {split} images."
    same: dict[str, list[int]] = defaultdict(list)
    for number, image in enumerate(found.images):
        same[image.digest].append(number)
    twice = [numbers for numbers in same.values() if len(numbers) > 1]
    across = [numbers for numbers in twice if len({splits[number] for number in numbers}) > 1]
    if across:
        yield f"images in two splits, which make accuracies too high: {len(across):,} ({_pairs(found, across)})."
    labelled = [numbers for numbers in twice if len({found.images[number].item.label for number in numbers}) > 1]
    if labelled:
        two = "two sets of classes" if found.multi_label else "two labels"
        yield f"images with {two}: {len(labelled):,} ({_pairs(found, labelled)})."
    if rest := len(twice) - len({id(numbers) for numbers in (*across, *labelled)}):
        yield f"images that occur more than once: {rest:,}."


def _content(item: Item) -> Content | str:
    """Reads an image, or returns why it cannot be read."""
    try:
        return item.read()
    except ImageError as error:
        return str(error)
    except OSError as error:
        return f"{item.name} cannot be read: {error.strerror}."


def _surveyed(read: tuple[Item, Content | str]) -> SurveyedImage | str:
    item, content = read
    if isinstance(content, str):
        return content
    try:
        rgba = pixels(content, item.name)
    except (ImageError, LimitError) as error:
        return str(error)
    if isinstance(content, bytes):
        with Image.open(io.BytesIO(content)) as image:
            size, digest = (image.height, image.width), hashlib.sha256(content)
    else:
        size, digest = content.shape[:2], hashlib.sha256(content.tobytes())
    is_grey = bool((rgba[..., 0] == rgba[..., 1]).all() and (rgba[..., 0] == rgba[..., 2]).all())
    return SurveyedImage(item, digest.hexdigest(), size, is_grey)


def _counts(found: Survey, splits: Sequence[Split]) -> dict[Split, Counter[str]]:
    counts: dict[Split, Counter[str]] = {"train": Counter(), "validation": Counter(), "test": Counter()}
    for image, split in zip(found.images, splits, strict=True):
        counts[split].update(image.item.labels)
    return counts


def _classes(labels: Sequence[str]) -> str:
    return (
        f"there are {len(labels):,} classes ({', '.join(_some(labels))})" if labels[1:] else f"{labels[0]} is a class"
    )


def _pairs(found: Survey, groups: Sequence[Sequence[int]]) -> str:
    return ", ".join(
        _some([" = ".join(found.images[number].item.name for number in numbers[:2]) for numbers in groups])
    )


def _some(names: Sequence[str]) -> list[str]:
    return [*names[:SHOWN], *(["..."] if len(names) > SHOWN else [])]


def _place(key: str) -> float:
    return int.from_bytes(hashlib.sha256(f"split {key}".encode()).digest()[:8]) / 2**64


def _split(place: float, validation: float, test: float) -> Split:
    return "test" if place < test else "validation" if place < test + validation else "train"

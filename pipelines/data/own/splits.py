"""Splits of data that come without: by a hash of the content, so that an image stays where it is when others come."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence

from pipelines.data.own.item import Split
from pipelines.data.own.scan import Scanned

# Shares of validation and test if the data assign no splits.
VALIDATION, TEST = 0.1, 0.2
# Images of a class from which on each split gets at least one of them.
FEW = 3


def assign(images: Sequence[Scanned], validation: float = VALIDATION, test: float = TEST) -> list[Split]:
    """Assigns images to splits.

    A hash of the image, or of its group, is its place between 0 and 1; the lowest places are the test split, the next
    ones the validation split. Images of the same content or group therefore share a split, and it does not change when
    images are added. Only a class of which a split would get none moves an image there.

    Args:
        images: the images; if the data have splits, these are kept.
        validation: share of the validation split.
        test: share of the test split.

    Returns:
        The split of each image.
    """
    if images and images[0].item.split is not None:
        return [image.item.split or "train" for image in images]
    keys = [image.digest if image.item.group is None else image.item.group for image in images]
    places = {key: _place(key) for key in keys}
    found = {key: _split(place, validation, test) for key, place in places.items()}
    members: dict[str, set[str]] = defaultdict(set)
    for image, key in zip(images, keys, strict=True):
        members[image.item.label].add(key)
    shares: dict[Split, float] = {"train": 1.0, "test": test, "validation": validation}
    wanted = [split for split, share in shares.items() if share]
    for own in members.values():
        for split in wanted if len(own) >= FEW else wanted[:1]:
            held = Counter(found[key] for key in own)
            if not held[split]:
                spare = [key for key in own if held[found[key]] > 1 or len(own) < FEW]
                found[(max if split == "train" else min)(spare, key=places.__getitem__)] = split
    return [found[key] for key in keys]


def _place(key: str) -> float:
    return int.from_bytes(hashlib.sha256(f"split {key}".encode()).digest()[:8]) / 2**64


def _split(place: float, validation: float, test: float) -> Split:
    return "test" if place < test else "validation" if place < test + validation else "train"

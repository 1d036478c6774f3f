"""A picture of a data set: images as they are stored, as the net sees them, and as augmentation changes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from pipelines.core.files import replacing

INK, QUIET = "#1a1a1a", "#7a7a7a"


@dataclass(frozen=True)
class Row:
    """One row of the picture: an image of each class shown."""

    title: str
    """What was done to the images."""
    images: np.ndarray
    """[n, h, w, c], 1 or 3 channels: pixels as stored (uint8), or values that the net sees (float32)."""


def draw(rows: Sequence[Row], labels: Sequence[str], heading: str, note: str, path: Path) -> None:
    """Draws rows of images under the names of their classes.

    Stored pixels are shown as they are. The values that the net sees share one linear scale over all rows, drawn at
    the foot with its numbers, so that rows can be compared with each other: zero is the middle grey when there are
    negative values, and black when there are none. Where values are negative, one in 200
    may lie beyond the scale.

    Args:
        rows: one for each thing done to the images.
        labels: name of the class of each column.
        heading: what data this is.
        note: settings, for the line at the foot.
        path: the file to write; its suffix chooses the format.

    Example:
        draw([Row("as stored", images)], ["cat", "dog"], "cifar10 3.0.2, training images", "", Path("cifar10.png"))
    """
    seen = [row.images for row in rows if row.images.dtype != np.uint8]
    low, high = _limits(seen) if seen else (0.0, 1.0)
    size = (1.0 + 1.0 * len(labels), 0.65 + 1.0 * len(rows) + (0.85 if seen else 0.0))
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    figure.suptitle(heading, fontsize=12, fontweight="bold", color=INK)
    axes = figure.subplots(len(rows), len(labels), squeeze=False)
    shown: AxesImage | None = None
    for row, places in zip(rows, axes, strict=True):
        stored = row.images.dtype == np.uint8
        for image, place in zip(row.images, places, strict=True):
            grey = image.shape[-1] == 1
            if stored or grey:
                limits = (0, 255) if stored else (low, high)
                drawn = place.imshow(image[..., 0] if grey else image, cmap="gray", vmin=limits[0], vmax=limits[1])
            else:
                scaled = np.clip((image - low) / (high - low), 0, 1)
                drawn = place.imshow(scaled, cmap="gray", vmin=low, vmax=high)
            shown = shown if stored else drawn
            place.set(xticks=[], yticks=[])
            for side in place.spines.values():
                side.set(color="#cccccc", linewidth=0.6)
        places[0].set_ylabel(row.title, rotation=0, ha="right", va="center", fontsize=8.5, color=INK, labelpad=8)
    for place, label in zip(axes[0], labels, strict=True):
        place.set_title(label, fontsize=min(10, 90 / max(len(label), 1)), color=INK, pad=4)
    if note:
        figure.supxlabel(note, fontsize=8.5, color=INK)
    if shown is not None:
        ends = "both" if low < 0 else "neither"
        bar = figure.colorbar(shown, ax=axes, location="bottom", shrink=0.5, aspect=50, pad=0.02, extend=ends)
        channels = ", in each colour channel" if rows[0].images.shape[-1] == 3 else ""
        bar.set_label(f"value that the net sees{channels}", fontsize=8, color=QUIET)
        bar.ax.tick_params(labelsize=7, colors=QUIET)
        bar.outline.set(color="#cccccc", linewidth=0.6)
    with replacing(path) as aside:
        figure.savefig(aside)


def _limits(images: Sequence[np.ndarray]) -> tuple[float, float]:
    values = np.concatenate([image.ravel() for image in images])
    if values.min() >= 0:
        return 0.0, float(values.max()) or 1.0
    # A few extreme pixels would make all others grey.
    high = float(np.quantile(np.abs(values), 0.995))
    return -high, high

"""Figures of data set samples and of predictions, and images as PNG files."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.image import AxesImage

from pipelines.core.class_names import families, text_width
from pipelines.core.files import replacing
from pipelines.core.plotting import saved

INK, QUIET, WRONG = "#1a1a1a", "#7a7a7a", "#c0392b"
COLUMNS = 10
IMAGE_STYLE = {"font.family": families(), "savefig.dpi": 150}
"""Images have no grid, and keep their margins."""


@dataclass(frozen=True)
class ImageRow:
    """A row of a sample figure: one image per class."""

    title: str
    """Processing step that the images have been through."""
    images: np.ndarray
    """[n, h, w, c], 1 or 3 channels: stored pixels (uint8), or inputs of the net (float32)."""


def draw_rows(rows: Sequence[ImageRow], labels: Sequence[str], heading: str, note: str, path: Path) -> None:
    """Draws rows of images under the names of their classes.

    Stored pixels are drawn as they are. Inputs of the net share one linear scale across all rows, with a colour bar:
    zero is mid-grey if there are negative values, and black otherwise. If there are negative values, the largest 0.5%
    by magnitude are clipped.

    Args:
        rows: one row per processing step.
        labels: class name of each column.
        heading: title of the figure.
        note: text at the bottom, such as the settings.
        path: the file to write; its suffix determines the format.

    Example:
        draw_rows([ImageRow("as stored", images)], ["cat", "dog"], "cifar10 3.0.2", "", Path("cifar10.png"))
    """
    inputs = [row.images for row in rows if row.images.dtype != np.uint8]
    low, high = _limits(inputs) if inputs else (0.0, 1.0)
    width = 1.0 + 1.0 * len(labels)
    lines = _lines(heading, width)
    height = 0.45 + 0.2 * len(lines) + 1.0 * len(rows) + (0.85 if inputs else 0.0)
    with saved(path, (width, height), IMAGE_STYLE) as figure:
        figure.suptitle("\n".join(lines), fontsize=12, fontweight="bold", color=INK)
        grid = figure.subplots(len(rows), len(labels), squeeze=False)
        scaled: AxesImage | None = None
        for row, row_axes in zip(rows, grid, strict=True):
            stored = row.images.dtype == np.uint8
            for image, axes in zip(row.images, row_axes, strict=True):
                grey = image.shape[-1] == 1
                if stored or grey:
                    limits = (0, 255) if stored else (low, high)
                    drawn = axes.imshow(image[..., 0] if grey else image, cmap="gray", vmin=limits[0], vmax=limits[1])
                else:
                    drawn = axes.imshow(np.clip((image - low) / (high - low), 0, 1), cmap="gray", vmin=low, vmax=high)
                scaled = scaled if stored else drawn
                axes.set(xticks=[], yticks=[])
                for spine in axes.spines.values():
                    spine.set(color="#cccccc", linewidth=0.6)
            row_axes[0].set_ylabel(row.title, rotation=0, ha="right", va="center", fontsize=8.5, color=INK, labelpad=8)
        for axes, label in zip(grid[0], labels, strict=True):
            axes.set_title(label, fontsize=min(10, 90 / max(text_width(label), 1)), color=INK, pad=4)
        if note:
            figure.supxlabel(note, fontsize=8.5, color=INK)
        if scaled is not None:
            ends = "both" if low < 0 else "neither"
            bar = figure.colorbar(scaled, ax=grid, location="bottom", shrink=0.5, aspect=50, pad=0.02, extend=ends)
            channels = ", each colour channel" if rows[0].images.shape[-1] == 3 else ""
            bar.set_label(f"input of the net{channels}", fontsize=8, color=QUIET)
            bar.ax.tick_params(labelsize=7, colors=QUIET)
            bar.outline.set(color="#cccccc", linewidth=0.6)


def draw_predictions(
    images: np.ndarray,
    truth: Sequence[str],
    predicted: Sequence[str],
    probabilities: Sequence[float],
    path: Path,
    *,
    heading: str | None = None,
) -> None:
    """Draws images with their predicted labels and probabilities; errors are framed and show the true label.

    Args:
        images: uint8 `[n, height, width, channels]`, grey (1 channel) or RGB (3).
        truth: the true labels.
        predicted: the predicted labels.
        probabilities: probabilities of the predicted labels, 0 to 1.
        path: the PNG file to write.
        heading: title of the figure; None counts the correct ones.

    Example:
        draw_predictions(images, ["7", "2"], ["7", "3"], [0.99, 0.61], Path("runs/demo/figures/predictions.png"))
    """
    count = len(images)
    columns = min(COLUMNS, count)
    rows = -(-count // columns)
    correct = sum(guess == label for guess, label in zip(predicted, truth, strict=True))
    lines = _lines(heading or f"{correct} of {count} correct", 1.15 * columns)
    height = 1.45 * rows + 0.3 + 0.2 * len(lines)
    with saved(path, (1.15 * columns, height), IMAGE_STYLE) as figure:
        figure.suptitle("\n".join(lines), fontsize=11, color=INK)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in grid:
            axes.set(xticks=[], yticks=[], frame_on=False)
        for axes, image, label, guess, probability in zip(grid, images, truth, predicted, probabilities, strict=False):
            wrong = guess != label
            # The full scale keeps faint images faint.
            axes.imshow(image.squeeze(-1) if image.shape[-1] == 1 else image, cmap="gray", vmin=0, vmax=255)
            colour = WRONG if wrong else INK
            size = min(11, 100 / max(text_width(guess), 1))
            axes.set_title(guess, fontsize=size, fontweight="bold", color=colour, pad=3)
            note = f"{probability:.1%}\nis {label}" if wrong else f"{probability:.1%}"
            axes.set_xlabel(
                note,
                fontsize=min(7, 130 / max(map(text_width, note.splitlines()))),
                color=WRONG if wrong else QUIET,
                labelpad=3,
            )
            if wrong:
                axes.set_frame_on(True)
                for spine in axes.spines.values():
                    spine.set(color=WRONG, linewidth=2)


def save_images(images: np.ndarray, names: Sequence[str], folder: Path) -> list[Path]:
    """Writes images as PNG files, pixel for pixel.

    Args:
        images: uint8 `[n, height, width, channels]`, grey (1 channel) or RGB (3).
        names: names of the files without suffix, one per image.
        folder: the folder to write to; created if missing.

    Returns:
        The files, in order.

    Example:
        save_images(examples.images[:3], ["seven", "two", "one"], Path("runs/demo/images"))
    """
    from PIL import Image

    paths = [folder / f"{name}.png" for name in names]
    for path, image in zip(paths, images, strict=True):
        with replacing(path) as aside:
            Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(aside)
    return paths


def _lines(heading: str, width: float) -> list[str]:
    """Breaks a heading into lines that fit into a figure; nine characters take about an inch."""
    return textwrap.wrap(heading, round(9 * width))


def _limits(images: Sequence[np.ndarray]) -> tuple[float, float]:
    values = np.concatenate([image.ravel() for image in images])
    if values.min() >= 0:
        return 0.0, float(values.max()) or 1.0
    # A few extreme pixels would leave all others grey.
    high = float(np.quantile(np.abs(values), 0.995))
    return -high, high

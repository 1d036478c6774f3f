"""Pictures out of a data set: PNG files to try `highway predict` on, and a sheet of what a model saw in them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipelines.core.files import replacing

COLUMNS = 10
RIGHT, WRONG, QUIET = "#1a1a1a", "#c0392b", "#7a7a7a"


def save_pictures(images: np.ndarray, names: Sequence[str], folder: Path) -> list[Path]:
    """Writes images as PNG files, pixel for pixel.

    Args:
        images: uint8 `[n, height, width, channels]`, grey (1 channel) or RGB (3).
        names: of the files, without suffix, one an image.
        folder: where to; made if missing.

    Returns:
        The files, in order.

    Example:
        save_pictures(examples.images[:3], ["seven", "two", "one"], Path("runs/demo/pictures"))
    """
    from PIL import Image

    paths = [folder / f"{name}.png" for name in names]
    for path, image in zip(paths, images, strict=True):
        with replacing(path) as aside:
            Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(aside)
    return paths


def draw_sheet(
    images: np.ndarray, truth: Sequence[str], predicted: Sequence[str], probabilities: Sequence[float], path: Path
) -> None:
    """Draws images with what a model saw in each, and how sure it was; wrong ones are framed and say what is right.

    Args:
        images: uint8 `[n, height, width, channels]`, grey (1 channel) or RGB (3).
        truth: the right label of each image.
        predicted: the label that the model gave.
        probabilities: of the given label, 0 to 1.
        path: the PNG file to write.

    Example:
        draw_sheet(images, ["7", "2"], ["7", "3"], [0.99, 0.61], Path("runs/demo/figures/predictions.png"))
    """
    from matplotlib.figure import Figure

    count = len(images)
    columns = min(COLUMNS, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(1.15 * columns, 1.45 * rows + 0.5), dpi=150, layout="constrained")
    right = sum(given == label for given, label in zip(predicted, truth, strict=True))
    figure.suptitle(f"{right} of {count} right", fontsize=11, color=RIGHT)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for place in axes:
        place.set_xticks([])
        place.set_yticks([])
        place.set_frame_on(False)
    for place, image, label, given, probability in zip(axes, images, truth, predicted, probabilities, strict=False):
        wrong = given != label
        colour = WRONG if wrong else RIGHT
        # Grey on the full scale: a faint picture has to look faint.
        place.imshow(image.squeeze(-1) if image.shape[-1] == 1 else image, cmap="gray", vmin=0, vmax=255)
        place.set_title(given, fontsize=min(11, 100 / len(given)), fontweight="bold", color=colour, pad=3)
        note = f"{probability:.1%}\nis {label}" if wrong else f"{probability:.1%}"
        place.set_xlabel(note, fontsize=7, color=WRONG if wrong else QUIET, labelpad=3)
        if wrong:
            place.set_frame_on(True)
            for side in place.spines.values():
                side.set(color=WRONG, linewidth=2)
    with replacing(path) as aside:
        figure.savefig(aside)

"""Writes the figures of a study; those of a short schedule carry a label."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from pipelines.core.files import replacing
from pipelines.core.plotting import ORANGE, STYLE, saved

COLOURS = 48
"""Palette size of an animation: lines and text need few colours, and more of them make a larger file."""
DPI = 80
"""Dots per inch of an animation."""
LETTERS = 11
"""Letters of the label per inch."""


@dataclass(frozen=True)
class FigureFile:
    """A figure in a file.

    Args:
        file: file name.
        title: title of its section.
        caption: what its axes and legend cannot say; may be empty.
    """

    file: str
    title: str
    caption: str


class Figures:
    """Writes the figures of a study and keeps their titles and captions for its page.

    Args:
        folder: folder to write to.
        label: printed on every figure of a short schedule; empty for a full one.

    Example:
        figures = Figures(folder / "figures", label="")
        with figures.figure("depth_sweep", (8, 4.5), "Accuracy over depth") as figure:
            figure.subplots().plot(depths, accuracies)
    """

    def __init__(self, folder: Path, label: str) -> None:
        self.folder = folder
        self.label = label
        self.files: list[FigureFile] = []

    @contextmanager
    def figure(self, name: str, size: tuple[float, float], title: str, caption: str = "") -> Iterator[Any]:
        """Yields an empty figure and writes it when the block ends.

        Args:
            name: name of the file, without suffix.
            size: size in inches.
            title: title of the figure and of its section.
            caption: what axes and legend cannot say. What the results mean belongs in docs/results.
        """
        with saved(self.folder / f"{name}.png", size) as figure:
            yield figure
            self._head(figure, title)
        self.files.append(FigureFile(f"{name}.png", title, caption))

    def animation(
        self,
        name: str,
        size: tuple[float, float],
        title: str,
        draw: Callable[[Any, int], None],
        *,
        frames: int,
        seconds: float = 0.6,
        caption: str = "",
    ) -> None:
        """Writes an animated GIF that loops and pauses on its last frame.

        Args:
            name: name of the file, without suffix.
            size: size in inches.
            title: title of the figure and of its section.
            draw: draws a frame, counted from 0, into an empty figure.
            frames: number of frames.
            seconds: seconds per frame.
            caption: see `figure`.
        """
        images = []
        with mpl.rc_context(STYLE):
            for number in range(frames):
                figure = Figure(figsize=size, dpi=DPI, layout="constrained")
                canvas = FigureCanvasAgg(figure)
                draw(figure, number)
                self._head(figure, title)
                canvas.draw()
                images.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]))
        # One palette for all frames, or colours would flicker.
        palette = images[-1].quantize(COLOURS)
        images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
        durations = [round(1000 * seconds)] * (frames - 1) + [round(4000 * seconds)]
        with replacing(self.folder / f"{name}.gif") as aside:
            images[0].save(
                aside, save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True, disposal=1
            )
        self.files.append(FigureFile(f"{name}.gif", title, caption))

    def _head(self, figure: Any, title: str) -> None:
        figure.suptitle(title)
        if self.label:
            figure.supxlabel(fill(self.label, int(LETTERS * figure.get_figwidth())), fontsize=9, color=ORANGE)

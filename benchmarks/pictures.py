"""`python -m benchmarks.pictures MODEL`: accuracy of a model on test digits that were drawn again as people have them.

The files go the way of the endpoint: decoded by Pillow, made into what the net sees by `picture.onnx`, predicted by
`model.onnx`. Nothing is chosen by these figures; they are read once, as those of `highway evaluate`.
"""

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.controller import ROOT
from benchmarks.redrawn import DRAWINGS, Drawing
from pipelines.core import frameworks
from pipelines.core.files import replacing, write_text
from serving import pictures
from serving.manifest import PROBABILITIES
from serving.model import Model, open_model

# Digits that are shown of each drawing.
SHOWN = 6
SEED = 0


def main() -> None:
    """Prints and writes a table, and draws some of the digits and what the net sees of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pictures", description=__doc__)
    parser.add_argument("model", type=Path, help="a version of a model of digits, or the folder of its versions")
    parser.add_argument("--data", default="mnist", help="data set, whose test split is drawn")
    parser.add_argument("--count", type=int, help="only the first digits of it")
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "results", help="folder for table and figure")
    asked = parser.parse_args()
    model = open_model(asked.model)
    frameworks.load()
    from pipelines.data import sources

    examples = sources.load(asked.data, "test")
    assert isinstance(examples, sources.Examples), "digits fit into memory"
    digits, labels = examples.images[: asked.count, :, :, 0], examples.labels[: asked.count]
    rows, shown = [], {}
    for name, draw in DRAWINGS.items():
        seen, shown[name] = see(model, draw, digits)
        right = np.mean(predicted(model, seen) == labels)
        rows.append((name, len(digits), f"{100 * right:.2f}", f"{np.mean(np.any(seen[..., 0] != digits, (1, 2))):.4f}"))
        sys.stdout.write("  ".join(map(str, rows[-1])) + "\n")
        sys.stdout.flush()
    asked.to.mkdir(parents=True, exist_ok=True)
    write_table(asked.to / "pictures.csv", rows)
    figure(asked.to / "pictures.png", shown)


def see(model: Model, draw: Drawing, digits: np.ndarray) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """What the net sees of digits that are drawn again, and the first of them with what is seen of them."""

    def one(number: int) -> tuple[np.ndarray, np.ndarray]:
        file = draw(digits[number].astype(np.float32), np.random.default_rng((SEED, number)))
        rgba = pictures.decode(file, f"digit {number}")
        return rgba if number < SHOWN else rgba[:0], model.see(rgba)

    with ThreadPoolExecutor(os.cpu_count()) as executor:
        found = list(executor.map(one, range(len(digits))))
    return np.stack([image for _, image in found]), found[:SHOWN]


def predicted(model: Model, images: np.ndarray, batch: int = 256) -> np.ndarray:
    """Classes, int64 [n]."""
    starts = range(0, len(images), batch)
    return np.concatenate([model.predict(images[at : at + batch])[PROBABILITIES].argmax(-1) for at in starts])


def write_table(path: Path, rows: list[tuple[str, int, str, str]]) -> None:
    """Writes the table as CSV."""
    lines = [("drawing", "digits", "accuracy_percent", "share_seen_otherwise"), *rows]
    write_text(path, "".join(",".join(map(str, line)) + "\n" for line in lines))


def figure(path: Path, shown: dict[str, list[tuple[np.ndarray, np.ndarray]]]) -> None:
    """Draws digits of each drawing as files show them, over what the net sees."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    made, axes = plt.subplots(
        len(shown), 2 * SHOWN, figsize=(2 * SHOWN * 0.8, len(shown) * 1.05), layout="constrained", squeeze=False
    )
    for row, (name, pairs) in zip(axes, shown.items(), strict=True):
        for axis, image in zip(row, [part for pair in pairs for part in pair], strict=True):
            axis.imshow(image, cmap="grey", vmin=0, vmax=255)
            axis.set(xticks=[], yticks=[])
            axis.set_facecolor("#cfe3f7")
        # Not a title, as the layout would make room for its whole width in the first column.
        row[0].annotate(name, (0, 1.12), xycoords="axes fraction", fontsize=9).set_in_layout(False)
    made.get_layout_engine().set(h_pad=0.12, rect=(0, 0, 1, 0.975))
    with replacing(path) as aside:
        made.savefig(aside, format="png", dpi=110)
    plt.close(made)


if __name__ == "__main__":
    main()

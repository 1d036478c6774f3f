"""The data of the benchmarks: the real data set where it is prepared. Every result names the data it used."""

import os
from pathlib import Path

import numpy as np


def mnist(count: int = 6000, *, quick: bool = False) -> tuple[str, np.ndarray, np.ndarray]:
    """Draws digits from `mnist` if TFDS finds it prepared, else from `mnist_5k`, which comes with a package.

    Args:
        count: number of digits, drawn with a fixed seed; a smaller set is returned whole.
        quick: whether to draw them from `mnist_5k` in any case: TFDS takes seconds to read all of `mnist`.

    Returns:
        The name of the data, images uint8 [n, 28, 28, 1] and labels int64 [n], of the training split.
    """
    from pipelines.data import sources
    from pipelines.data.sources import Examples

    name = "mnist" if is_prepared("mnist") and not quick else "mnist_5k"
    examples = sources.load(name, "train")
    assert isinstance(examples, Examples)  # They fit into memory.
    chosen = np.sort(np.random.default_rng(0).permutation(len(examples))[:count])
    return name, examples.images[chosen], examples.labels[chosen]


def is_prepared(name: str) -> bool:
    """Returns whether TFDS finds a data set prepared, so that no download is needed."""
    folder = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return (Path(folder).expanduser() / name).is_dir()

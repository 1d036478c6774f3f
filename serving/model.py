"""A model version, ready to predict."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from serving import files, repository
from serving.manifest import CLASS_ID, INPUT, ONNX, PROBABILITIES, Manifest, read
from serving.session import open_session


@dataclass(frozen=True)
class Model:
    """An opened model version.

    Args:
        folder: the version.
        manifest: what is known of it.
        session: its ONNX file in ONNX Runtime.
    """

    folder: Path
    manifest: Manifest
    session: Any

    def predict(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities and classes of a batch.

        Args:
            images: uint8 `[batch, height, width, channels]`, sizes as the manifest has them; any batch size.

        Returns:
            Probabilities, float32 `[batch, classes]`, and the most probable class of each image, int64 `[batch]`.

        Raises:
            ValueError: if the images have another type or size.

        Example:
            probabilities, class_id = open_model(Path("models/demo")).predict(images)
        """
        size = self.manifest.input.shape[1:]
        if images.dtype != np.uint8 or images.shape[1:] != size:
            raise ValueError(
                f"images must be uint8 of shape (batch, {', '.join(map(str, size))}). "
                f"Received: images of {images.dtype} and shape {images.shape}"
            )
        probabilities, class_id = self.session.run([PROBABILITIES, CLASS_ID], {INPUT: images})
        # ONNX Runtime keeps the reduced axis if the batch is empty.
        return probabilities, class_id.reshape(len(images))


def open_model(path: Path, threads: int = 1) -> Model:
    """Opens a model version after comparing all its files with its manifest.

    Args:
        path: a version folder, or a model's folder, whose newest version is taken.
        threads: threads for one prediction.

    Returns:
        The model.

    Raises:
        ModelError: if there is no model, or a file of it is missing or damaged.

    Example:
        model = open_model(Path("models/demo"))
        print(model.manifest.labels)
    """
    folder = repository.find(path)
    content = read(folder)
    files.verify(folder, content)
    return Model(folder, content, open_session(folder / ONNX, threads))


def top(probabilities: np.ndarray, count: int) -> np.ndarray:
    """Classes from most to least probable; of equal ones the first comes first.

    Args:
        probabilities: `[batch, classes]`.
        count: how many classes; all if there are fewer.

    Returns:
        Class indices, int64 `[batch, min(count, classes)]`.

    Example:
        top(np.array([[0.1, 0.7, 0.2]]), 2)  # [[1, 2]]
    """
    return np.argsort(-probabilities, axis=-1, kind="stable")[:, :count]

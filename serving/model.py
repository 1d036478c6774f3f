"""A model version, ready to predict."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from serving import checks, files, pictures, repository
from serving.checks import Samples
from serving.errors import PictureError
from serving.manifest import INPUT, LABELS, ONNX, PICTURE, REFERENCE, RGBA, Manifest, read
from serving.session import open_session


@dataclass(frozen=True)
class Sight:
    """What a model version makes of a picture, wherever it is predicted then.

    Args:
        folder: the version.
        manifest: what is known of it.
        picture: what makes its input of a picture, in ONNX Runtime; None in versions that were exported without.
        samples: pictures with what the Keras model gave for them; None in versions that were exported without.
    """

    folder: Path
    manifest: Manifest
    picture: Any
    samples: Samples | None

    def see(self, rgba: np.ndarray) -> np.ndarray:
        """What the net sees of a picture of any size.

        Args:
            rgba: uint8 `[height, width, 4]`, from `serving.pictures`.

        Returns:
            uint8 `[height, width, channels]`, sizes as the manifest has them.

        Raises:
            PictureError: the version was exported before it could.

        Example:
            image = model.see(pictures.read(Path("seven.jpg")))
        """
        if self.picture is None:
            raise PictureError(
                f"version {self.manifest.version} of model {self.manifest.name!r} takes no picture files, as it has no "
                f"{PICTURE}. Export the run again, or send pixels."
            )
        return self.picture.run([INPUT], {RGBA: pictures.shrunk(rgba)})[0]


@dataclass(frozen=True)
class Model(Sight):
    """An opened model version.

    Args:
        session: its ONNX file in ONNX Runtime.
    """

    session: Any

    def predict(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """What the model gives for a batch.

        Args:
            images: uint8 `[batch, height, width, channels]`, sizes as the manifest has them; any batch size.

        Returns:
            `probabilities`, float32 `[batch, classes]`; and `gate_means`, float32 `[batch, layers]`, if the manifest
            names layers.

        Raises:
            ValueError: if the images have another type or size.

        Example:
            open_model(Path("models/demo")).predict(images)["probabilities"]
        """
        size = self.manifest.input.shape[1:]
        if images.dtype != np.uint8 or images.shape[1:] != size:
            raise ValueError(
                f"images must be uint8 of shape (batch, {', '.join(map(str, size))}). "
                f"Received: images of {images.dtype} and shape {images.shape}"
            )
        names = self.manifest.computed
        return dict(zip(names, self.session.run(names, {INPUT: images}), strict=True))


def open_model(path: Path, threads: int = 1, trusted: Sequence[bytes] = ()) -> Model:
    """Opens a model version after comparing its manifest with all its files, its labels and its graphs.

    Args:
        path: a version folder, or a model's folder, whose newest version is taken.
        threads: threads for one prediction.
        trusted: public keys, one of which must have signed it; none opens unsigned versions too.

    Returns:
        The model.

    Raises:
        ModelError: if there is no model, a file of it is missing or damaged, they contradict each other, or it is not
            signed as it must be.

    Example:
        model = open_model(Path("models/demo"))
        print(model.manifest.labels)
    """
    return open_version(repository.find(path), threads, trusted)


def open_version(folder: Path, threads: int = 1, trusted: Sequence[bytes] = ()) -> Model:
    """Opens the model version of a folder; see `open_model`."""
    sight, found = _open(folder, read(folder, trusted), closed=bool(trusted))
    session = open_session(folder / ONNX, threads, content=found[ONNX])
    checks.graph(session, sight.manifest, folder / ONNX)
    return Model(**vars(sight), session=session)


def open_sight(folder: Path, content: Manifest, *, closed: bool = False) -> Sight:
    """Opens what a version makes of pictures, after comparing its manifest with all its files and its labels.

    Args:
        folder: the version.
        content: its manifest.
        closed: whether a file that the manifest does not list is refused.

    Raises:
        ModelError: if a file of it is missing or damaged, or they contradict each other.
    """
    return _open(folder, content, closed)[0]


def _open(folder: Path, content: Manifest, closed: bool) -> tuple[Sight, dict[str, bytes]]:
    found = files.verify(folder, content, keep=(ONNX, PICTURE, LABELS, REFERENCE), closed=closed)
    checks.labels(found[LABELS], content, folder / LABELS)
    picture = None
    if PICTURE in found:
        picture = open_session(folder / PICTURE, content=found[PICTURE])
        checks.picture_graph(picture, content, folder / PICTURE)
    samples = checks.samples(found[REFERENCE], content, folder / REFERENCE) if REFERENCE in found else None
    return Sight(folder, content, picture, samples), found


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

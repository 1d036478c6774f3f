"""The repository of the load test: versions of several models in turn, and damaged ones."""

import json
import shutil
from pathlib import Path

import numpy as np

from serving import manifest, repository
from serving.model import open_model
from serving.pictures import decode

NAME = "digits"
# Versions on disk, beside the one that was damaged last.
KEPT = 3


class Versions:
    """What lies in the repository.

    Args:
        sources: version folders. Version n is a copy of one of them, in turn, so that neighbours answer differently.
        root: of the repository.
    """

    def __init__(self, sources: list[Path], root: Path) -> None:
        self._sources = [repository.find(source) for source in sources]
        self.folder = root / NAME
        self.folder.mkdir(parents=True)
        self.newest = 0

    def source(self, version: int) -> Path:
        """What a version is a copy of."""
        return self._sources[version % len(self._sources)]

    def add(self) -> str:
        """The next version, complete or absent; the oldest goes."""
        aside, number = self._copied()
        aside.rename(self.folder / str(number))
        for old in repository.versions(self.folder)[:-KEPT]:
            shutil.rmtree(self.folder / str(old))
        return f"version {number}"

    def add_bad(self) -> str:
        """The next version, with a file that lost its end."""
        aside, number = self._copied()
        model = aside / manifest.ONNX
        model.write_bytes(model.read_bytes()[:-100])
        aside.rename(self.folder / str(number))
        return f"bad version {number}"

    def _copied(self) -> tuple[Path, int]:
        self.newest += 1
        aside = self.folder / f".{self.newest}"
        shutil.copytree(self.source(self.newest), aside)
        path = aside / manifest.NAME
        path.write_text(json.dumps({**json.loads(path.read_text()), "name": NAME, "version": self.newest}))
        return aside, self.newest


def expected(source: Path, pictures: list[bytes]) -> np.ndarray:
    """Probabilities of a version for picture files, `[n, classes]`, without an endpoint."""
    model = open_model(source)
    images = np.stack([model.see(decode(picture, "picture")) for picture in pictures])
    return model.predict(images)[manifest.PROBABILITIES]

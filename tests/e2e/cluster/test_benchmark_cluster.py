"""The benchmark `cluster`: a contestant on a cluster stays connected from one turn to the next."""

import io

import numpy as np
import pytest
from PIL import Image

from benchmarks.cluster import joined
from tests import tiny_model

pytestmark = pytest.mark.slow
COUNT = 200


def test_a_contestant_predicts_on_the_cluster_in_every_turn(cluster, tmp_path):
    version = tiny_model.write(tmp_path / "tiny" / "1")
    (tmp_path / "images").mkdir()
    for number in range(COUNT):
        buffer = io.BytesIO()
        Image.fromarray(np.full((4, 3), number, np.uint8)).save(buffer, "PNG")
        (tmp_path / "images" / f"{number}.png").write_bytes(buffer.getvalue())
    task = {"what": "job", "model": str(version), "images": [str(tmp_path / "images")], "folder": str(tmp_path)}
    with joined(cluster, "tasks", "batch_inference", task, tmp_path) as worker:
        first, second = worker.ask(1), worker.ask(1)
    assert [first.losses, second.losses] == [[COUNT], [COUNT]]
    assert not [*tmp_path.glob("predictions*")]

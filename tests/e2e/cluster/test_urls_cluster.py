"""`highway predict --cluster` with URLs only: nodes read the model and images, and write the parts, from and to S3."""

import io
import subprocess
import sys
import tarfile
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipelines.verbs.cli import main
from tests import tiny_model

pytestmark = pytest.mark.slow
COUNT, MORE = 120, 40
BUCKET = "s3://shared"
# Parts of at least 16 images, of which each takes half a second.
SLOWLY = """
import sys
from pipelines.inference import job, net_inputs, part_tasks
from pipelines.verbs.cli import main
from tests.cluster_tasks import predict_late
net_inputs.BATCH, part_tasks.LEAST, job.predict_part = 16, 16, predict_late
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def place(tmp_path):
    """A folder with a model, a folder of images, one of them unreadable, and a tar file of some of them."""
    root = tmp_path / "place"
    tiny_model.write(root / "tiny" / "1")
    (root / "images").mkdir()
    with tarfile.open(root / "more.tar", "w") as archive:
        for number in range(COUNT):
            buffer = io.BytesIO()
            pixels = np.random.default_rng(number).integers(0, 256, (4, 3), np.uint8)
            Image.fromarray(pixels).save(buffer, "PPM")
            path = root / "images" / f"{number:05}.pgm"
            path.write_bytes(b"not an image" if number == 7 else buffer.getvalue())
            if number < MORE:
                archive.add(path, path.name)
    return root


def test_nodes_share_nothing_but_a_bucket(cluster, store, place, tmp_path, monkeypatch):
    store("store.mkdir('shared')")
    store(f"store.put({str(place)!r} + '/', 'shared', recursive=True)")
    words = ["tiny", "images", "more.tar", "--out", "out.parquet", "--explain"]
    monkeypatch.chdir(place)
    monkeypatch.setattr("pipelines.inference.net_inputs.BATCH", 16)
    assert main(["predict", *words]) == 0
    whole = pq.read_table("out.parquet").to_pydict()
    place.rename(tmp_path / "elsewhere")

    by_url = [word if word.startswith("--") else f"{BUCKET}/{word}" for word in words]
    process = cluster.start(
        [sys.executable, "-c", SLOWLY, "predict", *by_url, "--cluster", cluster.address], stdout=subprocess.PIPE
    )
    while "/0" not in store("store.find('shared/.out.parquet.parts')"):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    cluster.kill("b")
    cluster.add("b")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert f"{BUCKET}/out.parquet: {COUNT + MORE} images; 2 unreadable" in output
    assert store("[name for name in store.find('shared') if 'out.parquet' in name]") == "['shared/out.parquet']"

    store(f"store.get('shared/out.parquet', {str(tmp_path / 'out.parquet')!r})")
    found = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert found.pop("path") == [f"{BUCKET}/{path}" for path in whole.pop("path")]
    assert [bool(error) for error in found.pop("error")] == [bool(error) for error in whole.pop("error")]
    assert found == whole

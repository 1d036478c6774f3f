"""`highway predict --cluster` with URLs only: nodes read the model and images, and write the parts, from and to S3."""

import io
import os
import socket
import subprocess
import sys
import tarfile
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests import tiny_model

pytestmark = pytest.mark.slow
COUNT = 1_500
BUCKET = "s3://shared"
# Parts of at least 128 images, of which each takes half a second.
SLOWLY = """
import sys
from pipelines.inference import job, part_tasks
from pipelines.verbs.cli import main
from tests.cluster_tasks import predict_late
part_tasks.LEAST, job.predict_part = 128, predict_late
sys.exit(main(sys.argv[1:]))
"""
# Uploads a folder, or prints an object.
COPY = """
import sys
import s3fs
store = s3fs.S3FileSystem()
if sys.argv[1] == "upload":
    store.mkdir("shared")
    store.put(sys.argv[2], "shared", recursive=True)
elif sys.argv[1] == "list":
    print(*store.find("shared"))
else:
    store.get("shared/out.parquet", sys.argv[2])
"""


@pytest.fixture
def store(cluster):
    """An S3 server in the network of the cluster, which its nodes find by the files of AWS."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (cluster.folder / "aws-config").write_text(
        f"[default]\nregion = us-east-1\nendpoint_url = http://127.0.0.1:{port}\n"
    )
    (cluster.folder / "aws-credentials").write_text(
        "[default]\naws_access_key_id = testing\naws_secret_access_key = testing\n"
    )
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = cluster.start(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def copy(*words):
        status, output = cluster.run([sys.executable, "-c", COPY, *map(str, words)])
        assert status == 0, output
        return output.split()

    yield copy
    server.kill()
    server.wait()


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
            if number < 200:
                archive.add(path, path.name)
    return root


def test_nodes_share_nothing_but_a_bucket(cluster, store, place, tmp_path):
    words = ["tiny", "images", "more.tar", "--out", "out.parquet", "--explain"]
    subprocess.run([sys.executable, "-m", "pipelines", "predict", *words], cwd=place, check=True, capture_output=True)
    whole = pq.read_table(place / "out.parquet").to_pydict()
    (place / "out.parquet").unlink()
    store("upload", f"{place}{os.sep}")
    place.rename(tmp_path / "elsewhere")

    by_url = [word if word.startswith("--") else f"{BUCKET}/{word}" for word in words]
    process = cluster.start(
        [sys.executable, "-c", SLOWLY, "predict", *by_url, "--cluster", cluster.address], stdout=subprocess.PIPE
    )
    while not any(".out.parquet.parts/0" in name for name in store("list")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    cluster.kill("b")
    cluster.add("b")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert f"{BUCKET}/out.parquet: 1,700 images; 2 unreadable" in output
    assert [name for name in store("list") if "out.parquet" in name] == ["shared/out.parquet"]

    store("download", tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert found.pop("path") == [f"{BUCKET}/{path}" for path in whole.pop("path")]
    assert [bool(error) for error in found.pop("error")] == [bool(error) for error in whole.pop("error")]
    assert found == whole

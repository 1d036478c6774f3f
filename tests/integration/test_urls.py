"""Data, runs, versions and predictions in a bucket, whose server may die, and whose writers may be killed."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from highway_keras import from_preset
from pipelines.core import url as urls
from pipelines.core.run import open_run
from pipelines.core.url import Url
from pipelines.export.version import new_version
from pipelines.inference import job
from pipelines.training import checkpoint
from pipelines.verbs.cli import main
from serving import bucket as buckets
from serving import manifest, release
from tests import houses, shapes, tiny_model
from tests.bucket_files import downloaded, temporary
from tests.killed_run import NEWEST, differences
from tests.toy_data import ToyData

pytestmark = pytest.mark.usefixtures("own_place")
BOTH_STORES = pytest.mark.parametrize("bucket", ["s3", "gs"], indirect=True)
ROOT = Path(__file__).parents[2]
WORDS = [
    *("mnist_dense_50", "--model.depth", "3", "--model.width", "8", "--model.dropout", "0.2", "--epochs", "2"),
    *("--batch-size", "20", "--precision", "float32", "--steps-per-execution", "2", "--checkpoint-steps", "1"),
]
STATE = f"runs/x/{NEWEST.as_posix()}"
# Writes the files of training in their order, epoch after epoch, until it is killed.
ENDLESS = """
import itertools, sys
from pipelines.core import sync
from pipelines.core.files import write_text
from pipelines.core.url import Url
sync.PERIOD = 0.01
with sync.synced(Url(sys.argv[1])) as run:
    for step in itertools.count():
        for name in ("metrics.csv", "best.keras", "checkpoint/state.npz", "run.json"):
            write_text(run / name, str(step))
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed run on a disk, which tests must not change."""
    run = tmp_path_factory.mktemp("runs") / "x"
    with pytest.MonkeyPatch.context() as patch:
        ToyData(side=28).install(patch)
        patch.setattr("pipelines.training.figures.draw_training", lambda run: None)
        assert main(["train", *WORDS, "--run", str(run)]) == 0
    return run


def exported(tmp_path):
    """An export of a tiny model: conversion takes long, and does not depend on where the version goes."""

    def export(run, to, *_, **__):
        assert open_run(run).record.state == "finished"
        with new_version(to) as (number, folder):
            made = tiny_model.write(tmp_path / "quarters" / str(number))
            shutil.copytree(made, folder, dirs_exist_ok=True)
        return to / str(number)

    return export


@BOTH_STORES
def test_objects_of_a_real_store_behave_like_those_in_memory(bucket, tmp_path):
    place = Url(bucket.url) / "folder"
    assert not place.exists()
    assert place.files() == []
    (place / "a").create(b"content")
    with pytest.raises(FileExistsError):
        (place / "a").create(b"other")
    (tmp_path / "large").write_bytes(bytes(6 << 20))
    (place / "b c").put(tmp_path / "large")
    (place / "b c").copy(place / "d")
    assert [(str(one.url), one.size) for one in place.files()] == [
        (f"{place}/{name}", size) for name, size in (("a", 7), ("b c", 6 << 20), ("d", 6 << 20))
    ]
    assert urls.read_all([place / "a", place / "e"]) == [b"content", None]
    with (place / "b c").open() as file:
        assert (file.seek(-3, io.SEEK_END), file.read()) == ((6 << 20) - 3, bytes(3))
    place.check_writable()
    (place / "d").unlink()
    place.rmtree()
    assert bucket.keys() == []
    for key in ("made/", "made/by/", "made/by/console"):
        bucket.put(key, b"")
    assert [str(one.url) for one in (Url(bucket.url) / "made").files()] == [f"{bucket.url}/made/by/console"]


@pytest.mark.usefixtures("toy")
def test_a_run_whose_store_dies_is_resumed_from_what_was_uploaded(bucket, whole, tmp_path, monkeypatch, capsys):
    url, save = f"{bucket.url}/runs/x", checkpoint.save

    def save_and_stop(folder, model, progress, origin):
        save(folder, model, progress, origin)
        while progress.step == 12 and STATE not in bucket.keys("runs/x"):
            time.sleep(0.01)
        if progress.step == 12:
            bucket.server.stop()

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_stop)
        assert main(["train", *WORDS, "--run", url]) == 2
    shown = capsys.readouterr()
    assert "The upload is tried again." in shown.err
    (kept,) = set(re.findall(r"aws s3 sync (\S+) ", shown.err))
    assert differences(whole, Path(kept)) == []

    bucket.server.start()
    assert main(["train", *WORDS, "--run", url]) == 2
    assert f"{url} exists already, and a run is never overwritten" in capsys.readouterr().err
    assert main(["train", "--resume", url]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"resuming after step (2|4|6|8|10|12)\n", shown)
    assert f"run directory {url}, report {url}/report.md\nnext: highway evaluate {url};" in shown
    assert "/temporary/" not in shown
    assert differences(whole, downloaded(url, tmp_path / "resumed")) == []
    assert temporary(tmp_path) == [Path(kept).parent.name]


def test_an_upload_that_is_killed_leaves_a_checkpoint_with_all_that_it_refers_to(bucket):
    words = [sys.executable, "-c", ENDLESS, f"{bucket.url}/runs/x"]
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True) as process:
        while "runs/x/run.json" not in bucket.keys("runs/x") or int(bucket.get(STATE)) < 100:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    found = {key.removeprefix("runs/x/"): int(bucket.get(key)) for key in bucket.keys("runs/x")}
    assert sorted(found) == ["best.keras", "checkpoint/state.npz", "metrics.csv", "run.json"]
    record, state = found.pop("run.json"), found.pop(NEWEST.as_posix())
    assert record <= state <= min(found.values())
    assert state >= 100


@BOTH_STORES
@pytest.mark.usefixtures("toy")
def test_a_run_is_evaluated_exported_and_predicted_with_by_url(bucket, whole, tmp_path, monkeypatch, capsys):
    bucket.upload(whole, "runs/x")
    run, model = f"{bucket.url}/runs/x", f"{bucket.url}/models/quarters"

    monkeypatch.setattr("pipelines.verbs.export.export", exported(tmp_path))
    assert main(["evaluate", run]) == 0
    assert f"written: {run}/evaluation.json," in capsys.readouterr().out
    assert "runs/x/evaluation.json" in bucket.keys("runs/x")
    # Left behind by an export that was killed.
    bucket.put("models/quarters/1/model.onnx", b"half")
    assert main(["export", run, "--to", model]) == 0
    assert f"next: highway predict {model}/2 IMAGE.png" in capsys.readouterr().out
    files = {*manifest.Manifest.model_validate_json(bucket.get(f"models/quarters/2/{manifest.NAME}")).files}
    assert {*bucket.keys("models")} == {
        "models/quarters/1/model.onnx",
        f"models/quarters/2/{manifest.NAME}",
        *(f"models/quarters/2/{name}" for name in files),
    }
    buffer = io.BytesIO()
    Image.fromarray(np.eye(28, dtype=np.uint8) * 255).save(buffer, "PNG")
    bucket.put("images/a.png", buffer.getvalue())
    assert main(["predict", model, f"{bucket.url}/images", "--format", "json"]) == 0
    shown = capsys.readouterr()
    assert f'"file": "{bucket.url}/images/a.png"' in shown.out
    assert shown.err.startswith(f"{model}/2 is the newest version of {model}\n")
    assert temporary(tmp_path) == []


def test_a_model_is_fitted_and_exported_by_url(bucket, whole, tmp_path, monkeypatch, capsys):
    for name in ("evaluate", "_report"):
        monkeypatch.setattr(f"pipelines.fit.fit.{name}", lambda *_: None)
    monkeypatch.setattr("pipelines.fit.fit.train", lambda _, run, **__: shutil.copytree(whole, run))
    monkeypatch.setattr("pipelines.fit.choice.seconds_per_step", lambda *_: 1.0)
    monkeypatch.setattr("pipelines.fit.fit.export", exported(tmp_path))
    bucket.put("houses.csv", houses.write(tmp_path / "houses.csv").read_bytes())
    run, model = f"{bucket.url}/runs/houses", f"{bucket.url}/models/houses"
    words = ["fit", f"{bucket.url}/houses.csv", "--target", "verdict", "--minutes", "0.01", "--run", run, "--to", model]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert f"next: highway predict {model}/1 " in shown
    assert f"highway serve {bucket.url}/models\n" in shown
    assert "/temporary/" not in shown
    assert open_run(downloaded(run, tmp_path / "run")).record.state == "finished"
    assert f"models/houses/1/{manifest.NAME}" in bucket.keys("models")
    assert temporary(tmp_path) == []
    assert main(words) == 2
    assert f"{run} exists already, and a run is never overwritten" in capsys.readouterr().err
    assert {key.split("/")[2] for key in bucket.keys("models")} == {"1"}


def test_images_are_predicted_by_a_glob_of_urls(bucket, tmp_path, capsys):
    bucket.upload(tiny_model.write(tmp_path / "tiny" / "1"), "tiny/1")
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((4, 3), np.uint8)).save(buffer, "PNG")
    # Folders may have an empty object.
    bucket.put("photos/", b"")
    for key in ("a1.png", "a2.png", "b.png", "a.txt", "c/a3.png", "c/d/a4.png", "[a].png"):
        bucket.put(f"photos/{key}", buffer.getvalue())

    def predicted(glob):
        assert main(["predict", f"{bucket.url}/tiny", f"{bucket.url}/photos/{glob}", "--format", "json"]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [json.loads(line)["file"].removeprefix(f"{bucket.url}/photos/") for line in lines]

    assert predicted("a*.png") == ["a1.png", "a2.png"]
    assert predicted("[ac]") == ["c/a3.png", "c/d/a4.png"]
    assert predicted("[a].png") == ["[a].png"]
    assert predicted("**/a[3-4].*") == ["c/a3.png", "c/d/a4.png"]
    assert main(["predict", f"{bucket.url}/tiny", f"{bucket.url}/photos/*.jpg"]) == 2
    assert f"there is nothing at {bucket.url}/photos/*.jpg. Expected an image" in capsys.readouterr().err


@BOTH_STORES
def test_endpoints_follow_a_release_in_a_bucket(bucket, tmp_path, capsys):
    for number in (1, 2, 3):
        bucket.upload(tiny_model.write(tmp_path / "tiny" / str(number), seed=number), f"models/tiny/{number}")
    url, copy, report = f"{bucket.url}/models", tmp_path / "copy", buckets.Report()
    copy.mkdir()
    labelled = release.Release(versions=(1, 2), labels={"stable": 1, "canary": 2})
    for words, copied, served in (
        ([], [2, 3], release.Release()),
        (["--labels", "stable=1", "canary=2"], [1, 2], labelled),
        (["--newest"], [2, 3], release.Release()),
    ):
        assert main(["release", f"{url}/tiny", *words]) == 0
        report = buckets.synchronize(url, copy, report)
        assert (report.problem, report.refused) == ("", {})
        assert sorted(int(path.name) for path in (copy / "tiny").glob("[0-9]*")) == copied
        assert release.read(copy / "tiny") == served
    assert capsys.readouterr().out.endswith(
        f"{url}/tiny: the newest version is served, 3 now\nTF Serving: {url}/models.config\n"
    )
    assert f'base_path: "{url}/tiny"' in bucket.get("models/models.config").decode()
    before = bucket.get("models/tiny/release.json")
    assert main(["release", f"{url}/tiny", "--versions", "7"]) == 2
    assert f"{url}/tiny has no version 7. It has: 1, 2, 3." in capsys.readouterr().err
    assert bucket.get("models/tiny/release.json") == before
    missing = bucket.url.replace("test", "missing")
    assert main(["release", f"{missing}/models/tiny"]) == 2
    assert capsys.readouterr().err.endswith(
        f"{missing}/models/tiny is not a model: it has no versions. Make one with `highway export`.\n"
    )


def test_predictions_survive_the_death_of_the_store(bucket, tmp_path, monkeypatch, capsys):
    tiny_model.write(tmp_path / "tiny" / "1")
    (tmp_path / "images").mkdir()
    with tarfile.open(tmp_path / "more.tar.gz", "w:gz") as archive:
        for number in range(40):
            buffer = io.BytesIO()
            pixels = np.random.default_rng(number).integers(0, 256, (4, 3), np.uint8)
            Image.fromarray(pixels).save(buffer, "PPM")
            content = b"not an image" if number == 7 else buffer.getvalue()
            (tmp_path / "images" / f"{number:03}.pgm").write_bytes(content)
            archive.add(tmp_path / "images" / f"{number:03}.pgm", f"{number:03}.pgm")
    for name in ("tiny", "images"):
        bucket.upload(tmp_path / name, name)
    bucket.put("more.tar.gz", (tmp_path / "more.tar.gz").read_bytes())
    monkeypatch.setattr(job, "GROUP", 32)
    monkeypatch.setattr("pipelines.inference.net_inputs.BATCH", 16)
    monkeypatch.chdir(tmp_path)
    assert main(["predict", "tiny", "images", "more.tar.gz", "--out", "whole.parquet"]) == 0

    save = job.Writer._save

    def save_and_stop(writer, batches, first):
        save(writer, batches, first)
        bucket.server.stop()

    url = bucket.url
    words = ["predict", f"{url}/tiny", f"{url}/images", f"{url}/more.tar.gz", "--out", f"{url}/out.parquet"]
    with monkeypatch.context() as patch:
        patch.setattr(job.Writer, "_save", save_and_stop)
        assert main(words) == 2
    assert "Check the network and the address of the store" in capsys.readouterr().err
    bucket.server.start()
    assert bucket.keys("out") == []
    assert main(words) == 0
    assert f"{url}/out.parquet: 80 images (32 by earlier attempts); " in capsys.readouterr().out
    assert bucket.keys("out") == ["out.parquet"]
    assert bucket.keys(".out") == []
    whole = pq.read_table("whole.parquet").to_pydict()
    found = pq.read_table(io.BytesIO(bucket.get("out.parquet"))).to_pydict()
    assert found.pop("path") == [f"{url}/{path}" for path in whole.pop("path")]
    errors = [error and re.sub("^(images|more)", rf"{url}/\1", error) for error in whole.pop("error")]
    assert found.pop("error") == errors
    assert found == whole


def test_a_run_on_data_in_a_bucket_goes_on_where_there_is_nothing_of_them(bucket, tmp_path, monkeypatch, capsys):
    shapes.write(tmp_path / "shapes", 8)
    bucket.upload(tmp_path / "shapes", "shapes")
    net = from_preset("mnist_dense_50", depth=3, width=8, dropout=0.2, input_shape=(8, 8, 3), outputs=3)
    net.save(tmp_path / "net.keras")
    bucket.put("net.keras", (tmp_path / "net.keras").read_bytes())
    url, whole, run, save = f"{bucket.url}/shapes", tmp_path / "whole", tmp_path / "run", checkpoint.save

    def save_and_copy(folder, model, progress, origin):
        save(folder, model, progress, origin)
        if progress.step == 4:
            # As a kill at this moment would leave it.
            shutil.copytree(whole, run)

    def move():
        """Makes this another machine."""
        shutil.rmtree(tmp_path / "cache")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_copy)
        words = ["--epochs", "1", "--batch-size", "2", "--image-size", "8", "--from", f"{bucket.url}/net.keras"]
        assert main(["train", *WORDS, *words, "--data", url, "--run", str(whole)]) == 0
    name = open_run(run).config.data
    assert re.fullmatch(f"{url}#[0-9a-f]{{16}}", name)
    move()
    assert main(["train", "--resume", str(run)]) == 0
    assert differences(whole, run) == []
    shown = capsys.readouterr()
    assert shown.out.count("downloading 24 objects (") == 2
    assert f"starting from {bucket.url}/net.keras, including its last layer\n" in shown.out
    assert f"{tmp_path}/cache" not in shown.out + shown.err

    # Another object has the same size.
    bucket.put("shapes/circle/000.png", bucket.get("shapes/circle/001.png"))
    move()
    assert main(["evaluate", str(run)]) == 2
    assert f"{url} has changed, or is prepared with other options: its data were {name}," in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["train", *WORDS, "--run", "s3://missing/x"],
        ["export", "runs/x", "--to", "s3://missing/x"],
        ["reproduce", "bias", "--to", "s3://missing/x"],
        ["tune", "demo", "--to", "s3://missing/x"],
    ],
)
@pytest.mark.usefixtures("toy")
def test_a_missing_bucket_is_named_before_anything_is_computed(words, capsys):
    assert main(words) == 2
    assert re.search(r"error: s3://missing/x\S* cannot be used: there is no such bucket", capsys.readouterr().err)

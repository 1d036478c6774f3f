"""Nets of the package: one file of weights for ONNX Runtime and Keras, and those that are shipped."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from highway_keras import from_preset
from highway_keras.models.trained_weights import REPOSITORY, pretrained
from pipelines.core.config import Preprocess
from pipelines.core.errors import UserError
from pipelines.core.run import load_model, open_run
from pipelines.export import graph
from pipelines.export.export import export
from pipelines.export.pretrained import MOST_BYTES, refresh_images, write
from pipelines.training import evaluation
from pipelines.training.evaluate import evaluate
from pipelines.verbs import pretrained as maintenance
from pipelines.verbs.cli import main
from serving import manifest, package, repository
from serving.engine.settings import Settings
from serving.files import verify
from serving.http.app import make_app
from serving.model import open_model
from serving.reference import SHOWN
from serving.session import open_session
from tests.digits import ten_digits
from tests.endpoint import LoadedClient
from tests.finished_run import finished, tiny_net


@pytest.fixture(scope="module")
def written(shared, mnist_5k):
    """A run, and its net as the package would ship it; tests only read both."""

    def make(folder):
        run = evaluated(folder / "run", tiny_net(), mnist_5k)
        write(run.path, folder / "nets" / "tiny", mnist_5k)

    folder = shared("written", make)
    return open_run(folder / "run"), folder / "nets" / "tiny" / "1"


def evaluated(path, net, data_dir, **config):
    run = finished(path, net, validation=500, **config)
    run.update(metrics={"loss": 2.0, "accuracy": 0.1, "val_loss": 2.0, "val_accuracy": 0.1})
    evaluate(path, data_dir=data_dir)
    return run


def test_one_file_of_weights_serves_onnx_runtime_and_keras(written):
    run, folder = written
    content = manifest.read(folder)
    assert sorted(content.files) == ["labels.txt", "model.onnx", "parity.npz", "picture.onnx", "weights.npz"]
    net = load_model(run)
    trained = net.get_weights()
    net.set_weights([np.zeros_like(weight) for weight in trained])
    with np.load(folder / manifest.WEIGHTS) as arrays:
        assert {arrays[name].dtype.name for name in arrays} == {"float16", "float32"}
        net.set_weights([arrays[weight.path] for weight in net.weights])
    for weight, before in zip(net.get_weights(), trained, strict=True):
        np.testing.assert_allclose(weight, before, rtol=1e-3, atol=1e-6)
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28, 1), dtype="uint8")
    logits = net(images.astype("float32") * run.config.preprocess.scale) / content.temperature
    found = open_model(folder).predict(images)
    np.testing.assert_allclose(found[manifest.PROBABILITIES], keras.ops.softmax(logits), atol=2e-6)
    assert found[manifest.GATE_MEANS].shape == (5, len(content.gates))
    # Calibrated: measured on the test split, on which the temperature was not fitted.
    assert content.run.test["count"] == 500
    assert content.run.test["loss"] < evaluation.of_run(run).loss


def test_a_net_that_has_not_been_evaluated_is_not_shipped(tmp_path, mnist_5k):
    run = finished(tmp_path / "run", tiny_net(), validation=500)
    with pytest.raises(UserError, match="Evaluate it first: highway evaluate"):
        write(run.path, tmp_path / "nets" / "tiny", mnist_5k)
    assert not (tmp_path / "nets").exists()


def test_kernels_that_float16_does_not_hold_are_stored_in_float32(tmp_path, mnist_5k):
    net = tiny_net()
    first = net.layers[2]
    # Smaller than the smallest number of float16, for larger pixels: the net gives the answers that it gave.
    first.kernel.assign(first.kernel * 1e-8)
    run = evaluated(tmp_path / "run", net, mnist_5k, preprocess=Preprocess(scale=1e8 / 256))
    folder = write(run.path, tmp_path / "nets" / "tiny", mnist_5k)
    with np.load(folder / manifest.WEIGHTS) as arrays:
        assert {arrays[name].dtype.name for name in arrays} == {"float32"}
        for weight in net.weights:
            np.testing.assert_array_equal(arrays[weight.path], weight)
    assert manifest.read(folder).run.test["correct"] == evaluation.of_run(run).correct


def test_all_nets_together_stay_small(written, tmp_path, mnist_5k, monkeypatch):
    run, folder = written
    size = sum(path.stat().st_size for path in folder.iterdir())
    shutil.copytree(folder.parent, tmp_path / "nets" / "first")
    monkeypatch.setattr("pipelines.export.pretrained.MOST_BYTES", 3 * size // 2)
    with pytest.raises(UserError, match=r"all nets of \S+ would take .* MB\. Remove another net first"):
        write(run.path, tmp_path / "nets" / "second", mnist_5k)
    assert not (tmp_path / "nets" / "second").exists()


def test_damaged_weights_are_refused(written, tmp_path, capsys):
    folder = shutil.copytree(written[1], tmp_path / "tiny" / "1")
    content = bytearray((folder / manifest.WEIGHTS).read_bytes())
    content[-200] ^= 1
    (folder / manifest.WEIGHTS).write_bytes(content)
    assert main(["predict", str(folder), "image.png"]) == 2
    assert "weights.npz is damaged" in capsys.readouterr().err


def test_a_net_is_not_overwritten(written, mnist_5k):
    run, folder = written
    with pytest.raises(UserError, match="exists already"):
        write(run.path, folder.parent, mnist_5k)


def test_calibration_needs_images_that_were_held_out(tmp_path, mnist_5k):
    run = finished(tmp_path / "run", tiny_net())
    run.update(data=run.record.data.model_copy(update={"counts": {"train": 4000, "test": 500}}))
    with pytest.raises(UserError, match="Train with --validation NUMBER"):
        export(run.path, tmp_path / "models" / "tiny", data_dir=mnist_5k, calibrate=True)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("preset", sorted(pretrained()))
def test_shipped_nets_give_the_same_answers_in_onnx_runtime_and_keras(preset):
    folder = pretrained()[preset]
    opened = open_model(folder)
    assert opened.samples
    assert {sample.label for sample in opened.samples.shown} <= set(opened.manifest.labels)
    assert len(opened.samples.shown) == min(SHOWN, len(opened.manifest.labels))
    images = np.random.default_rng(0).integers(0, 256, (4, *opened.manifest.input.shape[1:]), dtype="uint8")
    net = graph.with_temperature(from_preset(preset, weights=True), opened.manifest.temperature)
    x = images * np.float32(opened.manifest.preprocess["scale"]) - np.float32(opened.manifest.preprocess["mean_values"])
    expected = keras.ops.softmax(net(x))
    np.testing.assert_allclose(opened.predict(images)[manifest.PROBABILITIES], expected, atol=1e-4)


def test_a_copy_of_a_shipped_net_is_verified_and_signed(tmp_path, capsys):
    folder = shutil.copytree(REPOSITORY / "cifar10" / "1", tmp_path / "models" / "cifar10" / "1")
    key = Ed25519PrivateKey.generate()
    signing = tmp_path / "signing.pem"
    signing.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    main(["export", str(folder), "--verify", "--sign", str(signing)])
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == (f"{folder}: all files are unchanged", "signed")
    assert [line.split()[:2] for line in lines[2:-1]] == [["ONNX", "model"]]
    manifest.read(folder, [key.public_key().public_bytes_raw()])


@pytest.mark.parametrize("preset", sorted(pretrained()))
def test_shipped_nets_convert_image_files_as_todays_code_does(preset, tmp_path):
    folder = shutil.copytree(pretrained()[preset], tmp_path / "net" / "1")
    before = open_session(folder / manifest.PICTURE)
    refresh_images(folder)
    verify(folder, manifest.read(folder))
    after = open_session(folder / manifest.PICTURE)
    for rgba in drawn():
        for old, new in zip(*(session.run(None, {manifest.RGBA: rgba}) for session in (before, after)), strict=True):
            np.testing.assert_array_equal(old, new, err_msg="run `python -m pipelines.verbs.pretrained --images`")


def drawn():
    """Images for each branch of the conversions: digits as stored, on paper, side by side, in cells, and noise."""
    digits = ten_digits()
    paper = 255 - np.pad(np.kron(digits[3], np.ones((9, 9), np.uint8)), 60)
    row = 255 - np.pad(np.concatenate(digits[4:7], axis=1), 20)
    cells = np.kron(digits[8][2:26, 2:26].reshape(8, 3, 8, 3).mean((1, 3)).astype(np.uint8), np.ones((4, 4), np.uint8))
    noise = np.random.default_rng(0).integers(0, 256, (70, 45), np.uint8)
    for grey in (*digits[:3], paper, row, cells, noise, np.zeros((40, 90), np.uint8)):
        yield np.dstack([grey, grey, np.roll(grey, 1), np.full_like(grey, 255)])


@pytest.mark.parametrize("words", [[], ["run"], ["run", "name", "--images"], ["run", "--images"]])
def test_a_net_or_the_conversions_are_written(words):
    with pytest.raises(UserError, match="name a run and a model, or --images alone"):
        maintenance.main(words)


def test_shipped_nets_are_small_and_found_by_name(tmp_path, monkeypatch):
    assert sum(path.stat().st_size for path in REPOSITORY.rglob("*") if path.is_file()) <= MOST_BYTES
    monkeypatch.chdir(tmp_path)
    for folder in repository.models(REPOSITORY):
        assert repository.find(Path(folder.name)) == folder / "1"
        assert json.loads((folder / "1" / manifest.NAME).read_text())["run"]["test"]["split"] == "test"


def test_shipped_nets_are_served_and_name_a_photograph():
    settings = Settings(package.pretrained(), threads=1, decoders=1)
    with LoadedClient(make_app(settings)) as client:
        photograph = (Path(__file__).parents[2] / "docs" / "images" / "cat.jpg").read_bytes()
        answer = client.post("/predict/cifar10", files={"image": photograph}).json()
        assert answer["predictions"][0]["top"][0]["label"] == "cat"
        assert {"cifar10", "mnist"} <= set(client.get("/v1/models").json()["models"])

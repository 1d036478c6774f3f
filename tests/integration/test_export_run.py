"""`highway export` on run directories: complete versions, and refusals that leave nothing behind."""

import dataclasses
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import onnx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pipelines.core.config import Preprocess
from pipelines.core.run import load_model, open_run
from pipelines.data import sources
from pipelines.export import forms, int8, onnx_model, parity
from pipelines.export.form import Form, OpenedForm
from pipelines.export.version_files import checked_job
from pipelines.training.evaluation import measure
from pipelines.verbs.cli import main
from serving.manifest import read
from serving.measurements import Agreement
from serving.model import open_model
from tests import tiny_model
from tests.finished_run import DIGITS, finished, tiny_net

ROOT = Path(__file__).parents[2]
KEY = Ed25519PrivateKey.generate()


@pytest.fixture(scope="session")
def data_dir(mnist_5k):
    """The digits, prepared."""
    return mnist_5k


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The evaluated run of a tiny net; tests copy it."""
    run = finished(tmp_path_factory.mktemp("tiny") / "run", tiny_net())
    evaluated(run.path)
    return run.path


@pytest.fixture
def tiny_run(tiny, home):
    """A copy that the test may change."""
    return open_run(shutil.copytree(tiny, home / "run"))


def export(run, data_dir, *words):
    """Exports with the conversion of photographs: most of the time for that of digits goes into its own graph."""
    return main(["export", str(run), "--data-dir", str(data_dir), "--pictures", "natural", *words])


def evaluated(run):
    """Writes an evaluation of the final weights: one of four digits right."""
    found = measure(np.eye(10)[:4], np.array([0, 2, 3, 4]), DIGITS.labels, "final", "mnist_5k 1.0.0")
    (run / "evaluation.json").write_text(found.model_dump_json())


def refused(capsys, status):
    """Returns the message of a refused export."""
    message = capsys.readouterr().err
    assert status == 2
    assert message.startswith("highway export: error: ")
    assert "Traceback" not in message
    return message


def test_a_run_becomes_a_complete_version(home, data_dir, capsys):
    run = finished(home / "runs" / "digits", tiny_net(), preprocess=Preprocess(scale=1 / 256, mean="pixel"))
    evaluated(run.path)
    # By default, image files are converted as digits.
    assert main(["export", str(run.path), "--data-dir", str(data_dir)]) == 0
    assert "models/digits/1" in capsys.readouterr().out
    folder = home / "models" / "digits" / "1"
    assert [entry.name for entry in folder.parent.iterdir()] == ["1"]
    assert (folder / "labels.txt").read_text() == "".join(f"{digit}\n" for digit in range(10))

    found = read(folder)
    on_disk = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert set(found.files) == on_disk - {"manifest.json"}
    assert {"saved_model.pb", "model.onnx", "labels.txt", "variables/variables.index"} <= set(found.files)
    for name, file in found.files.items():
        assert file.sha256 == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert (found.name, found.version, found.labels, found.pictures) == ("digits", 1, DIGITS.labels, "digit")
    assert (found.parity.split, found.parity.images, found.parity.batch_sizes) == ("validation", 256, (1, 3, 252))
    assert found.parity.onnx.max_abs_difference <= 1e-4
    assert [one.split("_")[0] for one in found.gates] == ["conv", "highway"]
    assert (found.run.test["accuracy"], found.run.test["count"], found.run.test["split"]) == (0.25, 4, "test")
    assert "confusion" not in found.run.test
    assert found.run.commit == "0" * 40 + "+"
    assert found.run.metrics == {"loss": 2.0, "val_accuracy": 0.1}
    assert str(home) not in (folder / "manifest.json").read_text()
    assert str(home).encode() not in (folder / "saved_model.pb").read_bytes() + (folder / "model.onnx").read_bytes()

    (home / "signing.pem").write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    trusted = [KEY.public_key().public_bytes_raw()]
    # An existing version is signed by verifying it.
    assert main(["export", str(folder), "--verify", "--sign", "signing.pem"]) == 0
    assert open_model(folder, trusted=trusted).folder == folder


def test_a_calibrated_version_records_no_figures_of_other_probabilities(tiny_run, data_dir):
    found = [
        checked_job(
            tiny_run,
            "final",
            load_model(tiny_run),
            kind=None,
            gates=False,
            calibrate=calibrate,
            data_dir=data_dir,
        ).test
        for calibrate in (False, True)
    ]
    assert found[0].keys() - found[1].keys() == {"loss", "calibration_error"}
    assert found[0].items() >= found[1].items()


def test_an_unusable_key_is_reported_before_anything_is_written(tiny_run, home, data_dir, capsys):
    (home / "text.pem").write_text("no key")
    for name, expected in {"missing.pem": "No such file", "text.pem": "holds no private key"}.items():
        assert expected in refused(capsys, export(tiny_run.path, data_dir, "--sign", name))
    assert not (home / "models").exists()


@pytest.mark.slow
def test_a_net_trained_in_mixed_precision_is_exported_in_float32(home, data_dir):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = tiny_net()
    finally:
        keras.config.set_dtype_policy("float32")
    finished(home / "runs" / "mixed", model, "mixed_bfloat16")
    # The run was trained on a folder of prepared data, which the manifest must not name.
    config = json.loads((home / "runs" / "mixed" / "config.json").read_text())
    config["data"] = str(data_dir / "mnist_5k" / "1.0.0")
    (home / "runs" / "mixed" / "config.json").write_text(json.dumps(config))
    assert export("runs/mixed", data_dir) == 0
    folder = home / "models" / "mixed" / "1"
    assert str(data_dir) not in (folder / "manifest.json").read_text()
    assert 1e-5 < read(folder).parity.precision.max_abs_difference < 0.3
    graph = onnx.load(folder / "model.onnx").graph
    assert onnx.TensorProto.BFLOAT16 not in {tensor.data_type for tensor in graph.initializer}


@pytest.mark.slow
def test_the_best_weights_are_exported_on_request(home, data_dir):
    run = finished(home / "run", tiny_net())
    best = tiny_net(seed=1)
    best.save(run.path / "best.keras")
    evaluated(run.path)
    (home / "signing.pem").write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert export(run.path, data_dir, "--weights", "best", "--no-gates", "--to", "best", "--sign", "signing.pem") == 0
    assert open_model(home / "best", trusted=[KEY.public_key().public_bytes_raw()]).manifest.name == "best"
    found = read(home / "best" / "1")
    assert (found.name, found.model.weights, found.gates) == ("best", "best", None)
    # The evaluation is that of the final weights.
    assert found.run.test is None
    image = sources.load("mnist_5k", "test", data_dir).images[:1]
    probabilities = open_model(home / "best").predict(image)["probabilities"]
    np.testing.assert_allclose(probabilities, keras.ops.softmax(best(image / np.float32(256))), atol=1e-5)
    assert np.abs(probabilities - keras.ops.softmax(tiny_net()(image / np.float32(256)))).max() > 1e-3


def test_a_net_without_highway_layers_has_no_gates(home, data_dir):
    model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)])
    finished(home / "run", model)
    assert export("run", data_dir) == 0
    assert read(home / "models" / "run" / "1").gates is None


def test_a_model_keeps_its_classes_and_its_input(tiny_run, home, data_dir, capsys):
    tiny_model.write(home / "models" / "other" / "1")
    words = (tiny_run.path, data_dir, "--to", "models/other")
    message = refused(capsys, export(*words))
    assert "models/other is a model of 4 classes (zero, one, two, ...) and inputs of 4 x 3 x 1" in message
    assert "export it with --force" in message
    assert not (home / "models" / "other" / "2").exists()
    assert export(*words, "--force") == 0
    assert read(home / "models" / "other" / "2").labels == DIGITS.labels


def test_the_folder_of_all_models_is_refused(tiny_run, home, data_dir, capsys):
    (home / "other" / "digits" / "1").mkdir(parents=True)
    for folder in ("models", "other"):
        message = refused(capsys, export(tiny_run.path, data_dir, "--to", folder))
        assert f"{folder} is the folder of all models. Name the model: --to {folder}/{tiny_run.path.name}." in message
        assert not (home / folder / "1").exists()


def test_a_name_with_a_colon_is_refused(tiny_run, home, data_dir, capsys):
    message = refused(capsys, export(tiny_run.path, data_dir, "--to", "models/a:b"))
    assert "a:b cannot be the name of a model: a colon ends it in TF Serving's paths" in message
    assert not (home / "models").exists()


@pytest.mark.parametrize("state", ["running", "diverged"])
def test_an_unfinished_run_is_refused(tiny_run, home, data_dir, capsys, state):
    tiny_run.update(state=state, backend="jax")
    (tiny_run.path / "model.keras").unlink()
    finish = f"KERAS_BACKEND=jax highway train --resume {tiny_run.path}"
    message = refused(capsys, export(tiny_run.path, data_dir))
    unfinished = f"is unfinished, after 40 steps. Finish it with `{finish} --data-dir {data_dir}`."
    assert {"running": unfinished, "diverged": "its training diverged"}[state] in message
    assert not (home / "models").exists()


def test_a_checkpoint_of_an_unfinished_run_is_refused_too(tiny_run, data_dir, capsys):
    tiny_run.update(state="running")
    assert "is unfinished" in refused(capsys, export(tiny_run.path, data_dir))


@pytest.mark.slow
def test_the_best_epoch_of_a_stopped_run_is_exported(tiny_run, home, data_dir, capsys):
    tiny_run.update(state="running")
    (tiny_run.path / "model.keras").rename(tiny_run.path / "best.keras")
    assert "Or export its best epoch so far: --weights best." in refused(capsys, export(tiny_run.path, data_dir))
    assert export(tiny_run.path, data_dir, "--weights", "best") == 0
    assert read(home / "models" / tiny_run.path.name / "1").model.weights == "best"


@pytest.mark.parametrize("name", ["model.keras", "preprocess.npz", "run.json", "config.json", "evaluation.json"])
@pytest.mark.parametrize("damage", ["cut", "empty"])
def test_a_damaged_file_is_refused_by_name(tiny_run, data_dir, capsys, name, damage):
    file = tiny_run.path / name
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    message = refused(capsys, export(tiny_run.path, data_dir))
    assert f"run/{name}" in message
    assert "damaged" in message
    assert not tiny_run.path.with_name("models").exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"labels": ("a", "b")}, "one output for each of the 2 labels"), ({"shape": (32, 32, 3)}, "Expected images")],
)
def test_a_net_that_does_not_fit_its_data_is_refused(home, data_dir, capsys, changes, expected):
    run = finished(home / "run", tiny_net(), data=DIGITS.model_copy(update=changes))
    assert expected in refused(capsys, export(run.path, data_dir))


@pytest.mark.slow
def test_a_form_that_computes_something_else_is_not_exported(tiny_run, home, data_dir, capsys, monkeypatch):
    off = Agreement(max_abs_difference=2e-4, same_label=256, ties=0)
    monkeypatch.setattr(parity, "compare", lambda *_: off)
    assert "does not compute what the Keras model computes" in refused(capsys, export(tiny_run.path, data_dir))
    assert not (home / "models").exists()


@pytest.mark.slow
def test_a_form_is_added_by_one_row_of_the_table(home, data_dir, capsys, monkeypatch):
    def write(_, folder):
        shutil.copy(folder / "model.onnx", folder / "copy.onnx")

    def load(folder):
        return OpenedForm(onnx_model.predictor(folder / "copy.onnx"))

    known, form = forms.FORMS, Form("copy", "copy", ("copy.onnx",), write, load)
    monkeypatch.setattr(forms, "FORMS", (*known, form))
    monkeypatch.setattr(int8, "SECONDS", 0.01)
    run = finished(home / "run", tiny_net())
    assert export(run.path, data_dir, "--int8") == 0
    output = capsys.readouterr().out
    names = [one.name for one in forms.FORMS]
    assert f"{', '.join(names[:-1])} and copy of tiny" in output
    assert "\nint8: accuracy" in output
    content = read(home / "models" / "run" / "1")
    keys = list(content.parity.forms)
    assert keys == [one.key for one in forms.FORMS]
    assert (keys[:3], keys[-1]) == (["saved_model", "onnx", "int8"], "copy")
    assert names[:3] == ["SavedModel", "ONNX model", "int8 ONNX model"]
    assert content.parity.forms["copy"] == content.parity.onnx
    assert content.parity.forms["int8"].max_abs_difference > 1e-4
    assert (content.int8.calibration, content.int8.images) == (512, 500)

    assert main(["export", "models/run", "--verify"]) == 0
    rows = dict(zip(names, capsys.readouterr().out.splitlines()[2:], strict=False))
    assert [row.split("  ")[1] for row in rows.values()] == names
    assert "not checked" in rows["int8 ONNX model"]
    assert "  256 of 256 labels, gates " in rows["copy"]

    # Another program may know fewer forms, and a row that computes something else is refused by name.
    monkeypatch.setattr(forms, "FORMS", known)
    assert main(["export", "models/run", "--verify"]) == 0
    assert "copy" not in capsys.readouterr().out
    assert open_model(home / "models" / "run").predict(np.zeros((1, 28, 28, 1), np.uint8))["probabilities"].shape == (
        1,
        10,
    )
    lossy = dataclasses.replace(form, load=lambda folder: OpenedForm(onnx_model.predictor(folder / "model.int8.onnx")))
    monkeypatch.setattr(forms, "FORMS", (*known, lossy))
    assert "the exported copy does not compute" in refused(capsys, main(["export", "models/run", "--verify"]))


@pytest.mark.slow
def test_a_disk_full_while_writing_leaves_nothing(home, data_dir, capsys, monkeypatch):
    run = finished(home / "run", tiny_net())

    def save(_, path):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(onnx, "save", save)
    assert "disk is full" in refused(capsys, export(run.path, data_dir))
    assert not (home / "models").exists()


FULL_DISK = """
import subprocess, sys
from pathlib import Path
from pipelines.verbs.cli import main
disk = Path("disk")
for size in sys.argv[2:]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], check=True)
    status = main(["export", "run", "--data-dir", sys.argv[1], "--to", "disk/model", "--pictures", "natural"])
    print(size, status, [path.name for path in disk.iterdir()], flush=True)
    subprocess.run(["umount", disk], check=True)
"""


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_at_any_size(home, data_dir):
    (home / "disk").mkdir()
    private = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        subprocess.run([*private, "mount", "-t", "tmpfs", "tmpfs", home / "disk"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a tmpfs as a user is not permitted")
    finished(home / "run", tiny_net())
    sizes = ("4", "40", "64", "96")
    done = subprocess.run(
        [*private, sys.executable, "-c", FULL_DISK, data_dir, *sizes],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [f"{size} 2 []" for size in sizes], done.stderr
    assert done.stderr.count("the disk is full") == len(sizes)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_run_trained_on_jax_is_exported_whatever_the_environment_says(home, data_dir):
    run = finished(home / "run", tiny_net())
    record = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**record, "backend": "jax"}))
    words = [sys.executable, "-m", "pipelines", "export", "run", "--data-dir", data_dir, "--pictures", "natural"]
    jax = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=jax, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert read(home / "models" / "run" / "1").run.backend == "jax"

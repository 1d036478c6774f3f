import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest
from PIL import Image

from pipelines.core.errors import UserError
from pipelines.data.figures import save_images
from pipelines.inference.predict import predict
from pipelines.verbs.cli import main
from serving.client import Client
from tests.digits import ten_digits

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "golden"
MODEL = GOLDEN / "models" / "tiny"
IMAGES, EXPECTED = np.load(GOLDEN / "images.npy"), np.load(GOLDEN / "probabilities.npy")


@pytest.fixture
def images(tmp_path):
    return save_images(IMAGES, [f"digit-{index}" for index in range(len(IMAGES))], tmp_path)


def refused(capsys, *words):
    status = main(["predict", *map(str, words)])
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    assert captured.err.startswith("highway predict: error: ")
    assert "Traceback" not in captured.err
    return captured.err


def test_probabilities_are_those_of_the_net(images):
    # More than one batch, the last one partial.
    folder, predictions, unreadable = predict(MODEL / "2", images * 30)
    assert (folder, unreadable) == (MODEL / "2", [])
    assert [prediction.file for prediction in predictions] == [str(image) for image in images * 30]
    for prediction, row in zip(predictions, np.tile(EXPECTED, (30, 1)), strict=True):
        best = np.argsort(-row)[:3]
        assert [guess.label for guess in prediction.top] == [str(index) for index in best]
        np.testing.assert_allclose([guess.probability for guess in prediction.top], row[best], atol=1e-5)


@pytest.mark.parametrize("given", ["digit-0.png", "rows.csv"])
def test_a_folder_of_data_sets_is_refused_where_none_is_read(capsys, given):
    error = refused(capsys, MODEL, given, "--out", "out.parquet", "--data-dir", "nowhere")
    assert "--data-dir is for splits of data sets, such as tfds:mnist/test. Leave it out" in error


def test_images_are_asked_for(capsys):
    assert refused(capsys, MODEL) == (
        f"highway predict: error: which images? {MODEL} is the model, and nothing follows it. The command is highway "
        "predict MODEL IMAGES, with files, folders, globs or tar files, - for standard input, or one table.\n"
    )


def test_a_table(images, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["predict", str(MODEL / "2"), str(images[0]), str(images[4])]) == 0
    captured = capsys.readouterr()
    rows = [line.split("│")[1:-1] for line in captured.out.splitlines() if "digit" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        [str(images[0]), "0", "51.2%", "9 26.3%, 4 8.0%"],
        [str(images[4]), "4", "75.3%", "9 11.9%, 8 4.3%"],
    ]
    assert captured.err == ""


def test_json_is_one_object_per_line_with_the_version_printed_apart(images, capsys):
    assert main(["predict", str(MODEL), *map(str, images), "--format", "json"]) == 0
    captured = capsys.readouterr()
    found = [json.loads(line) for line in captured.out.splitlines()]
    assert [line["file"] for line in found] == [str(image) for image in images]
    assert [int(line["top"][0]["label"]) for line in found] == EXPECTED.argmax(-1).tolist()
    assert captured.err == f"{MODEL / '2'} is the newest version of {MODEL}\n"


def test_the_others_are_classified_if_an_image_is_bad(images, tmp_path, capsys):
    bad = tmp_path / "bad.png"
    bad.write_bytes(images[0].read_bytes()[:-40])
    with pytest.raises(SystemExit) as status:
        main(["predict", str(MODEL / "2"), str(bad), *map(str, images), "--format", "json"])
    captured = capsys.readouterr()
    assert status.value.code == 1
    assert len(captured.out.splitlines()) == len(images)
    assert captured.err.startswith(f"{bad} cannot be read as an image")
    assert len(captured.err.splitlines()) == 1


def test_without_any_image_that_can_be_read_there_is_no_table(tmp_path, capsys):
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(SystemExit) as status:
        main(["predict", str(MODEL / "2"), str(tmp_path / "bad.png")])
    captured = capsys.readouterr()
    assert (status.value.code, captured.out) == (1, "")
    assert captured.err.startswith(f"{tmp_path / 'bad.png'} is not an image. Expected")


def test_the_images_before_a_damaged_archive_are_classified(images, tmp_path, capsys):
    damaged = tmp_path / "more.tar"
    with tarfile.open(damaged, "w", format=tarfile.USTAR_FORMAT) as archive:
        for image in images:
            archive.add(image, image.name)
    # In the middle of the second of the images, each of which takes a header of 512 bytes and as much again.
    damaged.write_bytes(damaged.read_bytes()[:1700])
    with pytest.raises(SystemExit) as status:
        main(["predict", str(MODEL / "2"), str(images[0]), str(damaged), "--format", "json"])
    captured = capsys.readouterr()
    assert status.value.code == 1
    assert [json.loads(line)["file"] for line in captured.out.splitlines()] == [
        str(images[0]),
        f"{damaged}:{images[0].name}",
    ]
    (message,) = captured.err.splitlines()
    assert str(damaged) in message
    damaged.write_bytes(damaged.read_bytes()[:700])
    assert str(damaged) in refused(capsys, MODEL / "2", damaged)


def test_a_folder_without_images_is_reported(tmp_path, capsys):
    (tmp_path / "notes.txt").touch()
    message = refused(capsys, MODEL / "2", tmp_path)
    assert f"there are no images in {tmp_path}. Expected files that end in .avif, " in message


def test_folders_and_standard_input(images, capsys, monkeypatch):
    assert main(["predict", str(MODEL / "2"), str(images[0].parent), "--format", "json"]) == 0
    found = [json.loads(line)["file"] for line in capsys.readouterr().out.splitlines()]
    assert found == sorted(map(str, images))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(images[4].read_bytes())))
    assert main(["predict", str(MODEL / "2"), "-", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["file"], answer["top"][0]["label"]) == ("-", str(EXPECTED[4].argmax()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--version", "1"), "need --url"),
        (("--url", "http://127.0.0.1:1", "--version", "1", "--label", "stable"), "Leave one out"),
    ],
)
def test_a_version_is_named_for_an_endpoint_only(images, capsys, words, message):
    assert message in refused(capsys, MODEL, images[0], *words)


@pytest.mark.parametrize("word", ["", "*.png", "more.tar", "-", "tfds:mnist/test", "s3://bucket/a.png", "none.png"])
def test_an_endpoint_takes_files_of_this_machine_only(images, tmp_path, monkeypatch, capsys, word):
    monkeypatch.chdir(tmp_path)
    Path("more.tar").touch()
    word = word or str(tmp_path)
    message = refused(capsys, "digits", images[0], word, "--url", "http://127.0.0.1:1")
    assert f"with --url, images are existing files of this machine. Received: {word}. " in message


@pytest.fixture
def endpoint(monkeypatch):
    """An endpoint without a network, which gives each image the class 7; returns the requests."""
    requests = []

    def answer(request):
        requests.append(request)
        predictions = [{"top": [{"label": "7", "probability": 0.9}]}] * request.content.count(b"filename=")
        return httpx.Response(200, json={"model": "digits", "version": 2, "predictions": predictions})

    monkeypatch.setattr("serving.client.Client", partial(Client, transport=httpx.MockTransport(answer)))
    return requests


@pytest.mark.parametrize("form", ["table", "json"])
def test_an_endpoint_takes_files_whose_names_are_not_utf_8(endpoint, images, monkeypatch, capsys, form):
    monkeypatch.chdir(images[0].parent)
    name = os.fsdecode(b"caf\xe9.png")
    shutil.copy(images[0], name)
    assert main(["predict", "digits", name, "--url", "http://here", "--format", form]) == 0
    (request,) = endpoint
    # Forms escape the backslash.
    assert rb'filename="caf\\xe9.png"' in request.content
    shown = capsys.readouterr().out
    assert (json.loads(shown)["file"] if form == "json" else shown.splitlines()[3].split()[1]) == r"caf\xe9.png"


def test_a_whole_bucket_is_no_output(images, capsys):
    message = refused(capsys, MODEL, images[0], "--out", "memory://bucket")
    assert "memory://bucket is a whole bucket. Name a folder or an object in it, such as memory://bucket/" in message


def test_images_of_any_size_and_colour(images, tmp_path):
    from PIL import Image

    with Image.open(images[0]) as small:
        drawn = Image.eval(small.convert("L"), lambda ink: 255 - ink).resize((280, 280), Image.Resampling.NEAREST)
    large = tmp_path / "large.jpg"
    drawn.convert("RGB").save(large, quality=95)
    expected, found = predict(MODEL / "2", [images[0], large]).predictions
    assert found.top[0].label == expected.top[0].label
    assert found.top[0].probability == pytest.approx(expected.top[0].probability, abs=0.05)


def test_images_without_exactly_one_digit_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = np.pad(ten_digits()[7], 8)
    for name, image in (("one.png", one), ("two.png", np.hstack([one, one])), ("blank.png", np.zeros((200, 200)))):
        Image.fromarray(255 - image.astype(np.uint8)).save(name)
    assert main(["predict", "mnist", "one.png", "two.png", "blank.png"]) == 0
    notices = ["two.png: There are 2 digits here.", "blank.png: There is no digit here, or it is too small."]
    assert capsys.readouterr().err.splitlines()[1:] == notices
    assert main(["predict", "mnist", "one.png", "blank.png", "--format", "json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["digits"] for line in found] == [1, 0]
    assert [line.get("notice") for line in found] == [None, notices[1].partition(": ")[2]]


def test_large_images_are_refused_without_a_warning(tmp_path, capsys):
    from PIL import Image

    Image.new("L", (10_000, 9_500)).save(tmp_path / "large.png")
    with pytest.raises(SystemExit):
        main(["predict", str(MODEL / "2"), str(tmp_path / "large.png")])
    (message,) = capsys.readouterr().err.splitlines()
    assert "10000 x 9500 pixels, more than the limit of 50,000,000" in message


def test_missing_models_and_images(images, tmp_path, capsys):
    assert "there is no model" in refused(capsys, tmp_path / "nothing", images[0])
    assert "matches nothing as a glob" in refused(capsys, MODEL, tmp_path / "nothing.png")
    assert "IMAGES" in refused(capsys, MODEL)


@pytest.mark.parametrize("name", ["model.onnx", "saved_model.pb", "labels.txt", "manifest.json"])
def test_a_damaged_model_is_refused_by_name(images, tmp_path, name):
    shutil.copytree(MODEL, tmp_path / "model")
    path = tmp_path / "model" / "2" / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UserError, match=rf"2/{name} is damaged"):
        predict(tmp_path / "model", images)


def test_no_framework_is_imported(images):
    program = (
        "import sys; from pipelines.verbs.cli import main; status = main(sys.argv[1:]); "
        "print({'tensorflow', 'keras', 'jax', 'matplotlib'} & set(sys.modules)); sys.exit(status)"
    )
    words = [sys.executable, "-c", program, "predict", MODEL / "2", images[0]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"

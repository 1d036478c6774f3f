"""The page in headless Chromium, over an endpoint with digits and photographs."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image, ImageOps

import highway_keras
from serving.files import digests
from serving.manifest import LABELS, NAME, PICTURE, read
from tests import table_model
from tests.digits import all_digits
from tests.e2e.browser import CHROMIUM, DRIVER, TALL, assert_clean, browser
from tests.e2e.colour_model import COLOURS, add_photographs
from tests.endpoint import Endpoint, add_bad_version, add_version

TRAINED = Path(highway_keras.__file__).parent / "trained"
# Too long for a line on a phone.
LONG = "digits_of_a_model_with_quite_a_long_name"


@pytest.fixture(scope="session")
def models(repository, tmp_path_factory):
    """A repository with `digits`, `photographs`, copies of both, `trained` for CIFAR-10, tables, and `damaged`.

    Images of `recent` are converted as by this program; version 2 of `other` names the classes in reverse.
    """
    models = shutil.copytree(repository, tmp_path_factory.mktemp("page") / "models")
    add_photographs(models, models / "digits" / "1")
    copies = (
        ("other", "digits", {}),
        (LONG, "digits", {}),
        ("padded", "photographs", {"pictures": "padded"}),
        ("recent", "photographs", {}),
    )
    for name, original, changes in copies:
        shutil.copytree(models / original, models / name)
        manifest = models / name / "1" / "manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "name": name, **changes}))
    recent = models / "recent" / "1"
    shutil.copy(TRAINED / "cifar10" / "1" / PICTURE, recent)
    # Its answers cannot be taken for those of `photographs`.
    relabel(recent, ("scarlet", *read(recent).labels[1:]))
    shutil.copytree(TRAINED / "cifar10", models / "trained")
    manifest = models / "trained" / "1" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "name": "trained"}))
    add_version(models / "other", 2)
    relabel(models / "other" / "2", read(models / "other" / "2").labels[::-1])
    (models / "other" / "release.json").write_text(json.dumps({"versions": [1, 2]}))
    table_model.write(models / "houses" / "1", regression=True)
    table_model.write(models / "sales" / "1")
    table_model.write(models / "tags" / "1", multi_label=True, age="day")
    # A form has a property named `elements`.
    manifest = table_model.write(models / "metals" / "1", regression=True) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"rooms"', '"elements"'))
    add_bad_version(models / "digits", 2)
    (models / "damaged").mkdir()
    (models / "digits" / "2").rename(models / "damaged" / "1")
    return models


def relabel(folder, labels):
    """Gives the classes of a version other names."""
    content = read(folder)
    (folder / LABELS).write_text("\n".join(labels) + "\n")
    changed = content.model_copy(update={"labels": tuple(labels), "files": digests(folder)})
    (folder / NAME).write_text(changed.model_dump_json())


@pytest.fixture(scope="session")
def endpoint(models, tmp_path_factory):
    """The endpoint that tests share; they leave its repository as it was."""
    with Endpoint(models, tmp_path_factory.mktemp("log") / "log") as started:
        yield started


@pytest.fixture(scope="session")
def digit():
    """A three, as on paper."""
    return Image.fromarray(255 - all_digits()[0][1500]).resize((300, 300))


@pytest.fixture(scope="session")
def chromium(digit, tmp_path_factory):
    """A browser whose camera shows a three."""
    if not (CHROMIUM and DRIVER):
        pytest.skip("Chromium or chromedriver is not installed")
    shown = Image.new("L", (640, 480), 255)
    shown.paste(digit, (170, 90))
    camera = tmp_path_factory.mktemp("camera") / "three.mjpeg"
    shown.save(camera, "JPEG")
    with browser(TALL, camera=camera) as opened:
        yield opened


@pytest.fixture
def window(chromium):
    """An empty window of a desktop."""
    chromium.emulate(TALL)
    yield chromium
    chromium.leave()


@pytest.fixture
def page(window, endpoint):
    """The page, freshly loaded; after the test, its console is empty and it has contacted no other host."""
    window.open(endpoint.url)
    yield window
    assert_clean(window, endpoint.url)


@pytest.fixture
def image_files(digit, tmp_path):
    """A digit as PNG and as JPEG turned by EXIF, two photographs, one of them in a frame too, and an SVG file."""
    digit.save(tmp_path / "three.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    digit.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.jpg", exif=exif)
    for name in ("red", "blue"):
        Image.new("RGB", (400, 300), COLOURS[name]).save(tmp_path / f"{name}.jpg")
    with Image.open(tmp_path / "red.jpg") as red:
        ImageOps.expand(red, 40, "white").save(tmp_path / "framed.png")
    (tmp_path / "note.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
    return tmp_path

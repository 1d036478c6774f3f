"""The requests of the page: models with their facts, sample images, and maps of gates."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter

from serving import files, manifest
from serving.engine.settings import Settings
from serving.http.app import make_app
from serving.model import open_model
from serving.schemas import Answer, ServedModel
from tests import table_model, tiny_model
from tests.endpoint import IMAGES, LoadedClient

RAW = {"content-type": "application/octet-stream"}
CLASSES = [2, 0, 2]


def write_complete(folder):
    """Writes a version with sample images and maps of gates."""
    tiny_model.write(folder)
    probabilities = open_model(folder).predict(IMAGES)["probabilities"]
    np.savez(folder / manifest.REFERENCE, images=IMAGES, probabilities=probabilities, classes=CLASSES)
    path = folder / manifest.NAME
    content = json.loads(path.read_text())
    content["files"] = {name: file.model_dump() for name, file in files.digests(folder).items()}
    content["run"] |= {"data": {"name": "mnist"}, "test": {"accuracy": 0.75, "count": 8}}
    path.write_text(json.dumps(content))
    return folder


@pytest.fixture
def complete(tmp_path):
    """An endpoint over a complete version."""
    folder = write_complete(tmp_path / "models" / "tiny" / "1")
    with LoadedClient(make_app(Settings(models=folder.parents[1]))) as client:
        yield client


def test_models_come_with_facts_about_their_versions(complete):
    ((facts,),) = (model["facts"] for model in complete.get("/models").json())
    assert facts.pop("size") > 100
    assert facts == {
        "version": 1, "created": "2030-01-01T00:00:00+00:00", "net": "tiny", "parameters": 48, "data": "mnist",
        "test_accuracy": 0.75, "test_images": 8, "gates": True, "maps": True, "samples": ["zero", "two"], "rows": [],
        "test_mae": None, "test_map": None, "test_r2": None,
    }  # fmt: skip


def test_versions_that_differ_from_the_newest_have_their_own_columns_and_classes(tmp_path):
    root = tmp_path / "models" / "sales"
    table_model.write(root / "1", regression=True)
    for number in ("2", "3"):
        table_model.write(root / number, multi_label=True, age="day")
    (root / "release.json").write_text(json.dumps({"versions": [1, 2, 3]}))
    with LoadedClient(make_app(Settings(models=root.parent))) as client:
        answer = client.get("/models")
    ((newest, same, other),) = (model["facts"] for model in answer.json())
    own = {"input", "classes", "multi_label"}
    assert [own & facts.keys() for facts in (newest, same, other)] == [set(), set(), own]
    assert (other["classes"], other["multi_label"]) == ([], False)
    (model,) = TypeAdapter(list[ServedModel]).validate_json(answer.content)
    found = model.facts[2].input
    assert (found.target, [column.date for column in found.columns]) == ("price", [None, None, None])
    assert (model.input.target, [column.date for column in model.input.columns]) == ("sold", [None, "day", None])


def test_sample_images_are_files_of_the_size_of_the_input(complete):
    for number, image in enumerate((IMAGES[1], IMAGES[0])):
        answer = complete.get(f"/models/tiny/versions/1/samples/{number}.png")
        assert answer.headers["content-type"] == "image/png"
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(answer.content))), image[..., 0])


@pytest.mark.parametrize("number", [2**53, 2**63 - 1])
def test_a_version_that_javascript_would_round_is_a_string(tmp_path, number):
    folder = write_complete(tmp_path / "models" / "tiny" / str(number))
    with LoadedClient(make_app(Settings(models=folder.parents[1]))) as client:
        models = client.get("/models")
        (model,) = models.json()
        assert (model["versions"], model["facts"][0]["version"]) == ([str(number)], str(number))
        assert client.get(f"/models/tiny/versions/{number}/samples/0.png").status_code == 200
        answer = client.post(f"/predict/tiny?version={number}", content=IMAGES.tobytes(), headers=RAW)
        assert answer.json()["version"] == str(number)
    # Python reads integers of any size.
    assert TypeAdapter(list[ServedModel]).validate_json(models.content)[0].versions == (number,)
    assert Answer.model_validate_json(answer.content).version == number


@pytest.mark.parametrize(
    "path",
    [
        "tiny/versions/1/samples/2",
        "tiny/versions/2/samples/0",
        "other/versions/1/samples/0",
    ],
)
def test_an_unknown_sample_image_is_not_found(complete, path):
    answer = complete.get(f"/models/{path}.png")
    assert answer.status_code == 404
    assert answer.json()["error"]


@pytest.mark.parametrize(("path", "given"), [("versions/x/samples/0", "x"), ("versions/1/samples/-1", "-1")])
def test_numbers_in_the_path_of_a_sample_image_are_checked(complete, path, given):
    answer = complete.get(f"/models/tiny/{path}.png")
    said = f"the path has {given!r} in place of a number of up to 19 digits."
    assert (answer.status_code, answer.json()["error"]) == (400, said)


def test_maps_show_where_gates_open(complete):
    answer = complete.post("/predict/tiny?maps=true", content=IMAGES.tobytes(), headers=RAW).json()
    assert answer["map_layers"] == ["first"]
    for prediction, image in zip(answer["predictions"], IMAGES, strict=True):
        np.testing.assert_allclose(prediction["maps"], [image[..., 0] / 255], atol=1e-4)
    assert "maps" not in complete.post("/predict/tiny", content=IMAGES.tobytes(), headers=RAW).json()["predictions"][0]


def test_a_version_without_samples_and_gates_is_served(client):
    ((facts,),) = (model["facts"] for model in client.get("/models").json())
    assert (facts["samples"], facts["gates"], facts["maps"], facts["test_accuracy"]) == ([], False, False, None)
    assert client.get("/models/tiny/versions/1/samples/0.png").status_code == 404
    answer = client.post("/predict/tiny?maps=true", content=IMAGES.tobytes(), headers=RAW)
    assert answer.status_code == 200
    assert "maps" not in answer.json()["predictions"][0]

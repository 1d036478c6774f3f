"""The endpoint as an ASGI app over a classifier and a regression of tables, and a model of images."""

import json

import numpy as np
import pytest

from serving.engine import backends
from serving.engine.settings import Settings
from serving.http.app import make_app
from tests import table_model, tiny_model
from tests.endpoint import LoadedClient
from tests.unit.serving.conftest import NoChildren

ROWS = [{"rooms": 4, "age": 10, "city": "Rome"}, {"rooms": 2, "city": "Paris"}, [None, 5, None]]
NUMBERS = np.float32([[4, 10, 1], [2, np.nan, 0], [np.nan, 5, -1]])
TENSOR = {"name": "row", "datatype": "FP32", "shape": [3, 3], "data": [[4, 10, 1], [2, None, 0], [None, 5, -1]]}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    table_model.write(root / "houses" / "1", regression=True)
    table_model.write(root / "sales" / "1")
    tiny_model.write(root / "tiny" / "1")
    return root


@pytest.fixture(scope="module")
def client(models):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "ChildProcesses", NoChildren)
        with LoadedClient(make_app(Settings(models)), raise_server_exceptions=False) as made:
            yield made


def answered(client, path, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_all_protocols_give_the_same_values(client):
    expected = [300, 200, 85]
    own = answered(client, "/predict/houses", rows=ROWS)
    assert {key: own[key] for key in ("model", "version", "target")} == {
        "model": "houses", "version": 1, "target": "price",
    }  # fmt: skip
    assert own["predictions"] == [{"value": value} for value in expected]
    by_row = answered(client, "/v1/models/houses:predict", instances=ROWS)["predictions"]
    assert [one["value"] for one in by_row] == [[value] for value in expected]
    for inputs in (ROWS, {"row": ROWS}):
        columns = answered(client, "/v1/models/houses/versions/1:predict", inputs=inputs)["outputs"]
        assert columns["value"] == [[value] for value in expected]
    named = [{"row": list(row.values())} if len(row) == 3 and isinstance(row, dict) else row for row in ROWS]
    assert answered(client, "/v1/models/houses:predict", instances=named)["predictions"] == by_row
    (value, gates) = answered(client, "/v2/models/houses/infer", inputs=[TENSOR])["outputs"]
    assert (value["name"], value["datatype"], value["shape"], value["data"]) == ("value", "FP32", [3, 1], expected)
    np.testing.assert_allclose(
        np.reshape(gates["data"], (3, 2)), table_model.expected(NUMBERS)["gate_means"], atol=1e-6
    )


def test_binary_tensors(client):
    given = {"name": "row", "datatype": "FP64", "shape": [3, 3], "parameters": {"binary_data_size": 72}}
    head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    answer = client.post("/v2/models/houses/infer", content=head + NUMBERS.astype("<f8").tobytes(), headers=headers)
    length = int(answer.headers["inference-header-content-length"])
    assert np.frombuffer(answer.content[length : length + 12], np.float32).tolist() == [300, 200, 85]


def test_classes_are_answered_as_for_images(client):
    expected = table_model.expected(NUMBERS)["probabilities"]
    own = answered(client, "/predict/sales?top=2&explain=true", rows=ROWS)
    assert (own["target"], own["layers"]) == ("sold", ["first", "second"])
    for prediction, row in zip(own["predictions"], expected, strict=True):
        best = np.argsort(-row)[:2]
        assert [guess["label"] for guess in prediction["top"]] == [table_model.LABELS[index] for index in best]
        assert [guess["probability"] for guess in prediction["top"]] == pytest.approx(row[best], abs=1e-6)
        assert len(prediction["gates"]) == 2
    found = answered(client, "/v1/models/sales:predict", instances=ROWS)["predictions"]
    assert [one["label"] for one in found] == [table_model.LABELS[index] for index in expected.argmax(-1)]
    outputs = [{"name": "probabilities", "parameters": {"classification": 1}}]
    (top,) = answered(client, "/v2/models/sales/infer", inputs=[TENSOR], outputs=outputs)["outputs"]
    assert [one.split(":")[2] for one in top["data"]] == [one["label"] for one in found]


def test_unknown_categories_are_reported(client):
    said = ["city has no category 'Bonn', so it counts as missing (row 1)."]
    assert answered(client, "/predict/houses", rows=[{"city": "Bonn"}])["warnings"] == said
    assert answered(client, "/v1/models/houses:predict", instances=[{"city": "Bonn"}])["warnings"] == said
    assert answered(client, "/v1/models/houses:predict", inputs=[{"city": "Bonn"}])["warnings"] == said
    assert "warnings" not in answered(client, "/predict/houses", rows=[{"city": "Rome"}])


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/predict/houses", {"rows": [{"room": 4}]}, "row 1 has the column 'room'. Model 'houses' takes rows of"),
        ("/predict/houses", {"rows": [{}, {"rooms": "four"}]}, "row 2: rooms must be a number or null"),
        ("/predict/houses", {"rows": {"rooms": 4}}, "the rows must be a list"),
        ("/predict/houses", {"row": []}, "the body must be JSON such as"),
        ("/predict/houses?top=0", {"rows": []}, "'top' is an integer from 1 to 1,000. Received: '0'."),
        ("/v1/models/houses:predict", {"instances": [[4]]}, "row 1 has 1 values"),
        ("/v1/models/houses:predict", {"instances": [{"b64": ""}]}, "row 1 has the column 'b64'"),
        ("/v1/models/houses:predict", {"inputs": {"rooms": [4]}}, "the rows must be a list"),
        ("/v1/models/houses:predict", {"instances": [], "signature_name": "serving_bytes"}, "there is no signature"),
        ("/v2/models/houses/infer", {"inputs": []}, "\"inputs\" must be a list of one input, 'row'"),
        ("/v2/models/houses/infer", {"inputs": [TENSOR | {"name": "image"}]}, "there is no input 'image'. Give 'row'"),
        (
            "/v2/models/houses/infer",
            {"inputs": [TENSOR | {"datatype": "BYTES"}]},
            "must have the datatype FP32, or UINT8",
        ),
        ("/v2/models/houses/infer", {"inputs": [TENSOR | {"shape": [9]}]}, "the row has the shape (9,)"),
        ("/v2/models/houses/infer", {"inputs": [TENSOR | {"data": [[0, 0, 3]] * 3}]}, "row 1: city must be the index"),
        (
            "/v2/models/houses/infer",
            {"inputs": [TENSOR], "outputs": [{"name": "value", "parameters": {"classification": 1}}]},
            "\"classification\" does not apply to 'value'. It applies to gate_means",
        ),
        ("/v1/models/tiny:predict", {"instances": [{"rooms": 4}]}, "the signature has the one input 'image'"),
    ],
)
def test_what_does_not_fit_is_refused(client, path, body, said):
    answer = client.post(path, json=body)
    assert answer.status_code == 400, answer.text
    assert said in answer.json()["error"]


@pytest.mark.parametrize(
    "request_", [{"files": {"picture": ("a.png", b"x")}}, {"content": b"x", "headers": {"content-type": "image/png"}}]
)
def test_images_are_refused(client, request_):
    answer = client.post("/predict/houses", **request_)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("the request has images. Model 'houses' takes rows of 3 columns")


def test_rows_are_refused_by_a_model_of_images(client):
    answer = client.post("/predict/tiny", json={"rows": ROWS})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("the request has JSON, as for rows of a table. Model 'tiny' takes images")


def test_a_request_has_at_most_as_many_rows_as_images(client):
    for path, key in (("/predict/houses", "rows"), ("/v1/models/houses:predict", "instances")):
        answer = client.post(path, json={key: [{}] * 257})
        assert (answer.status_code, answer.json()["error"]) == (
            413,
            "257 rows in one request are more than the limit of 256.",
        )
    answer = client.post("/predict/houses", json={"rows": [[]] * 100_000})
    assert answer.status_code == 413
    assert answer.json()["error"].startswith("the JSON has far more values than 256 rows have.")


def test_what_a_model_takes_is_described(client):
    houses, sales, tiny = client.get("/models").json()
    columns = [dict(column) for column in table_model.COLUMNS]
    assert houses["input"] == {"shape": [3], "pictures": None, "columns": columns, "target": "price"}
    assert (houses["classes"], sales["classes"]) == ([], list(table_model.LABELS))
    tested = [
        [model["facts"][0][f"test_{name}"] for name in ("accuracy", "mae", "r2", "images")] for model in (sales, houses)
    ]
    assert tested == [[0.85, None, None, 40], [None, 12.5, 0.91, 40]]
    assert sales["facts"][0]["samples"] == ["no", "later", "yes"]
    assert sales["facts"][0]["rows"][2] == {"rooms": 4, "age": 10, "city": "Rome"}
    assert (tiny["input"]["columns"], tiny["input"]["target"], tiny["facts"][0]["rows"]) == ([], None, [])
    found = client.get("/v1/models/houses/metadata").json()["metadata"]
    assert (found["columns"], found["target"], found["classes"]) == (columns, "price", [])
    found = client.get("/v1/models/sales/metadata").json()["metadata"]
    assert (found["classes"], found["multi_label"]) == (list(table_model.LABELS), False)
    (signature,) = found["signature_def"]["signature_def"].values()
    assert signature["inputs"]["row"]["dtype"] == "DT_FLOAT"
    assert set(client.get("/v1/models/tiny/metadata").json()["metadata"]) == {"signature_def"}
    found = client.get("/v2/models/houses").json()
    assert found["inputs"] == [{"name": "row", "datatype": "FP32", "shape": [-1, 3]}]
    config = client.get("/v2/models/houses/config").json()
    assert config["input"] == [{"name": "row", "data_type": "TYPE_FP32", "dims": [3]}]
    assert client.get("/models/sales/versions/1/samples/0.png").status_code == 404


def test_rows_are_counted_like_images(client):
    def counts():
        (found,) = client.get("/v2/models/houses/stats").json()["model_stats"]
        return found["inference_count"], found["inference_stats"]["success"]["count"]

    rows, requests = counts()
    answered(client, "/predict/houses", rows=ROWS)
    assert counts() == (rows + 3, requests + 1)
    assert 'model="houses"' in client.get("/metrics").text

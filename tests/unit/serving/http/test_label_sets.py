"""The endpoint over a model whose rows have any number of classes, with a column of dates."""

import numpy as np
import pytest

from serving.engine import backends
from serving.engine.settings import Settings
from serving.http.app import make_app
from serving.schemas import Answer, ServedModel
from tests import table_model
from tests.endpoint import LoadedClient
from tests.unit.serving.conftest import NoChildren

NUMBERS = np.float32([[4, 10.5, 1], [2.1, 0, 2], [0, 90, -1]])
ROWS = [{"rooms": 4, "age": "1970-01-11T12:00", "city": "Rome"}, [2.1, "1970-01-01", "Oslo"], {"rooms": 0, "age": 90}]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = table_model.write(tmp_path_factory.mktemp("models") / "tags" / "1", multi_label=True, age="time")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "ChildProcesses", NoChildren)
        with LoadedClient(make_app(Settings(folder.parents[1])), raise_server_exceptions=False) as made:
            yield made


def posted(client, path, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_all_classes_above_one_half_are_answered(client):
    expected = table_model.expected(NUMBERS, multi_label=True)["probabilities"]
    own = posted(client, "/predict/tags?top=2", rows=ROWS)
    for prediction, row in zip(own["predictions"], expected, strict=True):
        order = np.argsort(-row)
        assert [one["label"] for one in prediction["top"]] == [table_model.LABELS[place] for place in order[:2]]
        assert [one["probability"] for one in prediction["top"]] == pytest.approx(row[order[:2]], abs=1e-6)
        assert prediction["labels"] == [table_model.LABELS[place] for place in order if row[place] > 0.5]
    assert [len(one["labels"]) for one in own["predictions"]] == [2, 3, 2]
    assert Answer.model_validate(own).predictions[0].labels == tuple(own["predictions"][0]["labels"])


def test_other_protocols_give_the_same_probabilities(client):
    expected = table_model.expected(NUMBERS, multi_label=True)["probabilities"]
    found = posted(client, "/v1/models/tags:predict", instances=ROWS)["predictions"]
    np.testing.assert_allclose([one["probabilities"] for one in found], expected, atol=1e-6)
    tensor = {"name": "row", "datatype": "FP32", "shape": [3, 3], "data": NUMBERS.ravel().tolist()}
    outputs = posted(client, "/v2/models/tags/infer", inputs=[tensor], outputs=[{"name": "probabilities"}])["outputs"]
    np.testing.assert_allclose(np.reshape(outputs[0]["data"], (3, 3)), expected, atol=1e-6)


def test_the_model_says_that_its_probabilities_are_independent(client):
    (found,) = client.get("/models").json()
    (facts,) = found["facts"]
    assert (found["multi_label"], facts["test_map"], facts["test_accuracy"]) == (True, 0.85, None)
    # One row for each class that an earlier one does not have.
    assert facts["samples"] == ["yes", "no, later"]
    assert facts["rows"][0]["age"] == "1970-01-11T00:00:00"
    served = ServedModel.model_validate(found)
    assert (served.input.columns[1].date, served.input.label_separator) == ("time", "|")
    assert client.get("/v1/models/tags/metadata").json()["metadata"]["columns"][1]["date"] == "time"


def test_a_text_that_is_no_date_is_refused(client):
    answer = client.post("/predict/tags", json={"rows": [{"age": "soon"}]})
    assert answer.status_code == 400
    assert answer.json()["error"] == "row 1: age must be a date such as 2026-11-26 or null. Received: 'soon'."

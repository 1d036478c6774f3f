"""The faults of versions, the answers that are known, and the judgement of requests without an answer."""

import json

import numpy as np
import pytest

from benchmarks.faults import LOST, Tally, _judge
from benchmarks.known_answers import infer_message, inputs, questions
from benchmarks.unstable_endpoint import DAMAGE, Endpoint, copied
from serving.errors import ModelError
from serving.messages.open_inference import CLASSES
from serving.model import open_version
from tests.digits import all_digits


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    return copied("mnist", tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_version_is_refused(what, tmp_path):
    version = copied("mnist", tmp_path)
    DAMAGE[what](version)
    with pytest.raises(ModelError):
        open_version(version)


def test_the_log_tells_accepted_requests_from_those_that_came_too_late(tmp_path):
    log = tmp_path / "log"
    lines = [{"message": "request", "request_id": f"ask-{status}", "status": status} for status in (200, 499, 503)]
    lines += [{"message": "version loaded", "version": 1}, {"message": "request", "request_id": "other", "status": 200}]
    log.write_text("serving models\n" + "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    tally = Tally(unanswered={"ask-200", "ask-499", "ask-503", "ask-late"})
    _judge(Endpoint(tmp_path, log), tally)
    assert (tally.counts[LOST], len(tally.wrong)) == (1, 1)
    assert sorted(tally.counts.values()) == [1, 1, 2]


def test_an_answer_is_compared_with_the_output_of_the_net(net):
    digits = all_digits()[0][:2, ..., None]
    (question,) = [one for one in questions(net, digits) if one.path.endswith(":predict")][-1:]
    given = question.expected.tolist()

    def problem(rows):
        return question.problem(json.dumps({"predictions": [{"probabilities": row} for row in rows]}).encode(), {2})

    assert problem(given) == ""
    assert "differs by" in problem([row[::-1] for row in given])
    assert "shape" in problem(given[:1])
    assert "differs by nan" in problem([[float("nan")] * 10] * 2)
    assert question.problem(json.dumps({"predictions": [{"probabilities": row} for row in given]}).encode(), {1})


def test_a_message_holds_the_images_in_one_piece_or_value_by_value():
    images = inputs(np.arange(784, dtype=np.uint8).reshape(1, 28, 28, 1), colours=True)
    assert images.shape == (1, 32, 32, 3)
    whole = CLASSES["ModelInferRequest"].FromString(infer_message("cifar10", images))
    listed = CLASSES["ModelInferRequest"].FromString(infer_message("cifar10", images, listed=True))
    assert whole.raw_input_contents[0] == bytes([*listed.inputs[0].contents.uint_contents]) == images.tobytes()

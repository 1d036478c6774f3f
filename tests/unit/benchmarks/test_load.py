"""The load test must see what it looks for."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.load.__main__ import _growth
from benchmarks.load.clients import Question
from benchmarks.load.servers import Look
from benchmarks.load.versions import KEPT, NAME, Versions
from serving.answers import Answer
from serving.errors import ModelError
from serving.model import open_model
from serving.repository import versions

GOLDEN = Path(__file__).parents[2] / "golden" / "models" / "tiny"
FIRST, SECOND = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.5, 0.5], [0.6, 0.4]])


def test_versions_are_whole_or_damaged_and_few(tmp_path):
    made = Versions([GOLDEN], tmp_path)
    folder = tmp_path / NAME
    for number in range(1, KEPT + 2):
        assert made.add() == f"version {number}"
        assert open_model(folder / str(number)).manifest.version == number
    assert made.add_bad() == f"bad version {KEPT + 2}"
    with pytest.raises(ModelError, match="damaged"):
        open_model(folder / str(KEPT + 2))
    assert versions(folder) == [2, 3, 4, 5]


def answer(version, *rows):
    predictions = [
        {"top": [{"label": label, "probability": share} for label, share in zip("ab", row, strict=True)]}
        for row in rows
    ]
    return Answer.model_validate({"model": NAME, "version": version, "predictions": predictions})


def test_an_answer_is_held_against_its_version_and_picture():
    question = Question("http://here", NAME, [b"x", b"y"], [FIRST, SECOND], ("a", "b"))
    assert question.check([1, 0], answer(2, FIRST[1], FIRST[0])) is None
    assert question.check([1, 0], answer(3, SECOND[1], SECOND[0])) is None
    assert question.check([0, 1], answer(2, FIRST[1], FIRST[0])) == "version 2, picture 0: 0.7 off"
    assert question.check([0], answer(3, FIRST[0])) == "version 3, picture 0: 0.4 off"


def test_growth_is_that_of_the_process_that_was_started_last():
    before = [Look(second, "endpoint", 1, 50.0 + second) for second in range(100)]
    flat = [Look(100 + second, "endpoint", 2, 100.0) for second in range(100)]
    assert _growth(before + flat) == 0
    grown = [Look(second, "backend", 3, 100.0 + second) for second in range(100)]
    assert _growth(before + flat + grown) == pytest.approx(191.5 / 127.5 - 1)

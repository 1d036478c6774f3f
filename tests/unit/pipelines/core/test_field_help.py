from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from pipelines.core.config import Config, Space
from pipelines.core.field_help import expectation, explain, placeholder
from pipelines.core.frozen import Frozen
from pipelines.core.optimizers import SGD, Optimizer


@pytest.mark.parametrize(
    ("annotation", "words", "short"),
    [
        (int, "a whole number", "INT"),
        (Annotated[int, Field(ge=1)], "a whole number of at least 1", "INT"),
        (Annotated[float, Field(gt=0)] | None, "a number greater than 0 or none", "NUMBER|none"),
        (Annotated[float, Field(ge=0, lt=1)], "a number of at least 0 and less than 1", "NUMBER"),
        (Annotated[float, Field(gt=0, le=1)], "a number greater than 0 and at most 1", "NUMBER"),
        (Literal["a", "b", "c"], "'a', 'b' or 'c'", "a|b|c"),
        (float | Literal["auto"] | None, "a number, 'auto' or none", "NUMBER|auto|none"),
        (tuple[Annotated[int, Field(ge=1)], ...], "values, each a whole number of at least 1", "[INT ...]"),
        (
            Annotated[tuple[Path, ...], Field(min_length=1)],
            "one or more values, each a path",
            "[PATH ...]",
        ),
        (Path | None, "a path or none", "PATH|none"),
        (bool, "true or false", "BOOL"),
        (SGD, "a group of fields", None),
        (Optimizer, "a group of fields", None),
    ],
)
def test_the_values_of_a_field_are_explained(annotation, words, short):
    assert expectation(annotation) == words
    if short:
        assert placeholder(annotation) == short


def explained(values):
    with pytest.raises(ValidationError) as caught:
        Config.model_validate({"recipe": "x", "model": {"preset": "x"}, "data": "mnist", **values})
    return explain(caught.value, Config)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1. Received: 0."),
        ({"epochs": "many"}, "epochs must be a whole number of at least 1. Received: 'many'."),
        (
            {"optimizer": {"momentum": 1.5}},
            "optimizer.momentum must be a number of at least 0 and less than 1. Received: 1.5.",
        ),
        (
            {"schedule": {"kind": "step", "boundaries": [5, 0]}},
            "schedule.boundaries must be values, each a whole number of at least 1. Received: 0.",
        ),
        (
            {"model": {"preset": "x", "transform_bias": "low"}},
            "model.transform_bias must be a number, 'auto' or none. Received: 'low'.",
        ),
        ({"optimizer": {"momentun": 0.9}}, "there is no field optimizer.momentun. Did you mean 'momentum'?"),
        (
            {"optimizer": {"name": "adam", "momentum": 0.9}},
            "there is no field optimizer.momentum. Adam has: name, learning_rate, clip_norm, ema, epsilon.",
        ),
        (
            {"optimizer": {"name": "no_such"}},
            "optimizer.name must be 'sgd', 'adam'",
        ),
        ({"schedule": 3}, "schedule must be a group of fields. Received: 3."),
        ({"zzz": 1}, "there is no field zzz. Config has: recipe, model, data"),
        ({"model": {}}, "model.preset is missing."),
        ({"model": 3}, "model must be a group of fields. Received: 3."),
        (
            {"schedule": {"kind": "step", "boundaries": [5, 3]}},
            "schedule: boundaries must rise. Received: boundaries=(5, 3).",
        ),
    ],
)
def test_one_wrong_field(values, message):
    assert explained(values).startswith(message)


def test_every_wrong_field_has_a_line():
    assert explained({"epochs": 0, "seed": -1}).splitlines() == [
        "epochs must be a whole number of at least 1. Received: 0.",
        "seed must be a whole number of at least 0. Received: -1.",
    ]


def test_a_rule_of_a_field_is_named_like_the_field():
    with pytest.raises(ValidationError) as caught:
        Space(activation=("relu", "relu"), dropout=(0.5, 0.1))
    assert explain(caught.value, Space, "/".join) == (
        "activation: choices of activation must be unique. Received: relu relu.\n"
        "dropout: dropout is a range, LOW HIGH. Received: 0.5 0.1."
    )


def test_a_rule_across_fields():
    class Range(Frozen):
        """A range."""

        low: int

        def model_post_init(self, _):
            raise ValueError("low is too low")

    with pytest.raises(ValidationError) as caught:
        Range(low=1)
    assert explain(caught.value, Range) == "low is too low."

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from pipelines.core.config import Config, ModelConfig, Optimizer, Schedule, Subset
from pipelines.recipes.provenance import flat

from .strategies import configs


@given(configs)
def test_json_round_trip(config):
    assert Config.model_validate_json(config.model_dump_json(indent=2)) == config


def test_json_is_plain(small):
    assert json.loads(small.model_dump_json())["optimizer"]["momentum"] == 0.9


def test_nothing_can_be_changed(small):
    with pytest.raises(ValidationError):
        small.epochs = 3
    with pytest.raises(ValidationError):
        small.optimizer.momentum = 0.5


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (Optimizer, {"learning_rate": 0}),
        (Optimizer, {"learning_rate": float("nan")}),
        (Optimizer, {"learning_rate": float("inf")}),
        (Optimizer, {"momentum": 1}),
        (Optimizer, {"momentum": -0.1}),
        (Optimizer, {"ema": 1}),
        (Optimizer, {"clip_norm": 0}),
        (Optimizer, {"name": "rmsprop"}),
        (Optimizer, {"momentun": 0.9}),
        (Schedule, {"kind": "step"}),
        (Schedule, {"kind": "cosine", "boundaries": [3]}),
        (Schedule, {"kind": "step", "boundaries": [5, 3]}),
        (Schedule, {"kind": "step", "boundaries": [3, 3]}),
        (Schedule, {"kind": "step", "boundaries": [0]}),
        (ModelConfig, {"preset": "x", "transform_bias": "automatic"}),
        (ModelConfig, {"preset": "x", "depth": 0}),
        (ModelConfig, {}),
    ],
)
def test_what_is_out_of_range_is_refused(model, values):
    with pytest.raises(ValidationError):
        model(**values)


def test_every_field_is_told():
    def untold(model: type[BaseModel]) -> list[str]:
        missing = []
        for name, field in model.model_fields.items():
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                missing += untold(kind)
            elif not field.description:
                missing.append(f"{model.__name__}.{name}")
        return missing

    assert untold(Config) == []


@pytest.fixture
def small():
    return Config(recipe="x", model=ModelConfig(preset="x"), data="mnist")


def test_defaults_are_those_of_the_docstrings(small):
    values = flat(small)
    assert values["optimizer.momentum"] == 0.9
    assert values["preprocess.scale"] == 1 / 255
    assert values["schedule.kind"] == "constant"


def test_nothing_is_held_out_of_what_a_seed_draws():
    with pytest.raises(ValidationError, match=r"none can be held out.*subset\.seed=0, validation=100"):
        Config(recipe="x", model=ModelConfig(preset="x"), data="mnist", validation=100, subset=Subset(seed=0))


@given(configs, st.integers(0, 100))
def test_another_seed_draws_another_subset_where_a_seed_draws_it(config, seed):
    other = config.seeded(seed)
    before, after = flat(config), flat(other)
    assert (other.seed, other.subset.seed) == (seed, None if config.subset.seed is None else seed)
    assert {field for field in before if before[field] != after[field]} <= {"seed", "subset.seed"}
    assert flat(config.seeded(seed, draws=3)) == after | {"subset.seed": other.subset.seed and seed % 3}


def test_a_configuration_from_before_a_field_was_added_still_opens():
    # config.json as version 0.1 wrote it: fields that came since have defaults that change nothing.
    kept = json.loads(Config(recipe="x", model=ModelConfig(preset="x"), data="mnist").model_dump_json())
    del kept["subset"], kept["preprocess"]["offset"], kept["optimizer"]["epsilon"], kept["model"]["initializer"]
    opened = Config.model_validate_json(json.dumps(kept))
    assert flat(opened)["subset.train"] is None
    assert (opened.preprocess.offset, opened.optimizer.epsilon, opened.model.initializer) == (0.0, 1e-7, None)

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipelines import recipes
from pipelines.core.config import CHOICES, Config, ModelConfig, Space
from pipelines.core.errors import UserError
from pipelines.core.frozen import flat
from pipelines.core.optimizers import Adam, CosineSchedule, ExponentialSchedule
from pipelines.tuning import space
from pipelines.tuning.space import FIELDS, changed, searched
from tests.toy_data import toy_config

VALUES = {
    "learning_rate": st.floats(1e-6, 10),
    "momentum": st.floats(0, 0.999),
    "decay": st.floats(0.01, 1),
    "activation": st.sampled_from(["relu", "tanh", "elu"]),
    "transform_bias": st.floats(-20, 5),
    "depth": st.integers(1, 1000),
    "width": st.integers(1, 500),
    "dropout": st.floats(0, 0.99),
    "weight_decay": st.floats(1e-6, 1),
    "label_smoothing": st.floats(0, 0.99),
    "rand_augment": st.integers(0, 4),
    "magnitude": st.floats(0.01, 1),
    "sharpness": st.floats(0, 0.99),
    "rotate": st.floats(0, 45),
    "zoom": st.floats(0, 5),
    "elastic": st.floats(0, 5),
    "cutout": st.integers(0, 32),
    "mixup": st.floats(0, 2),
    "cutmix": st.floats(0, 2),
    "batch_size": st.integers(1, 4096),
    "precision": st.sampled_from(["float32", "mixed_bfloat16", "mixed_float16"]),
}


# Includes every field that can be searched.
CONFIG = toy_config(schedule=ExponentialSchedule())


def test_every_parameter_is_a_field_of_a_configuration():
    assert set(FIELDS) == set(Space.model_fields) == set(VALUES)
    assert set(FIELDS.values()) <= set(flat(CONFIG))


@given(st.fixed_dictionaries({}, optional=VALUES).filter(lambda values: not {"mixup", "cutmix"} <= values.keys()))
def test_the_values_drawn_are_trained_and_nothing_else_changes(values):
    before, after = flat(CONFIG), flat(changed(CONFIG, values))
    assert {name: after[field] for name, field in FIELDS.items() if name in values} == values
    touched = {FIELDS[name] for name in values}
    assert {field: after[field] for field in after if field not in touched} == {
        field: before[field] for field in before if field not in touched
    }


def test_a_net_without_gates_has_no_gate_bias():
    config = toy_config(model=ModelConfig(preset="mnist_dense_50_plain", depth=4))
    assert changed(config, {"transform_bias": -3.0, "width": 5}).model.model_dump(exclude_none=True) == {
        "preset": "mnist_dense_50_plain",
        "depth": 4,
        "width": 5,
    }


def test_incompatible_values_are_a_user_error():
    with pytest.raises(UserError, match="batch_size must be a whole number of at least 1"):
        changed(toy_config(), {"batch_size": 0})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"transform_bias": (-1.0, -5.0)}, "transform_bias is a range, LOW HIGH"),
        ({"learning_rate": (0.1,)}, "learning_rate is a range, LOW HIGH"),
        ({"momentum": (0.1, 0.5, 0.9)}, "momentum is a range, LOW HIGH"),
        ({"momentum": (0.5, 1.0)}, "less than 1"),
        ({"depth": (10, 10)}, "choices of depth must be unique"),
        ({"learning_rate": (0.0, 1.0)}, "greater than 0"),
    ],
)
def test_a_space_is_checked(wrong, message):
    with pytest.raises(ValidationError, match=message):
        Space(**wrong)


@pytest.mark.parametrize(
    ("wanted", "config", "message"),
    [
        ({}, {}, "the search space is empty"),
        ({"momentum": (0.5, 0.9)}, {"optimizer": Adam()}, "without --optimizer.name sgd"),
        ({"weight_decay": (0.001, 0.1)}, {"optimizer": Adam()}, "without --optimizer.name adamw"),
        ({"decay": (0.5, 0.9)}, {"schedule": CosineSchedule()}, "without --schedule.kind exponential"),
        (
            {"transform_bias": (-5.0, 0.0)},
            {"model": ModelConfig(preset="factor_plain")},
            "without a highway net",
        ),
    ],
)
def test_a_search_without_effect_is_refused(wanted, config, message):
    with pytest.raises(UserError, match=message):
        space.check(Space(**wanted), toy_config(**config))


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_can_be_searched(name):
    recipe = recipes.get(name)
    space.check(recipe.search, recipe.config)
    for parameter, bounds in searched(recipe.search).items():
        for value in bounds:
            assert isinstance(changed(recipe.config, {parameter: value}), Config)


def test_choices_and_ranges_are_distinguished_by_what_a_space_accepts():
    for name in FIELDS:
        one = {"activation": "relu", "precision": "float32"}.get(name, 1 if name in CHOICES else 0.5)
        if name in CHOICES:
            assert searched(Space(**{name: (one,)})) == {name: (one,)}
        else:
            with pytest.raises(ValidationError, match="is a range"):
                Space(**{name: (one,)})

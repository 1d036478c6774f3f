import math
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pipelines import recipes
from pipelines.core.config import HYPERPARAMETERS, Config, ModelConfig, Space
from pipelines.core.errors import UserError
from pipelines.core.field_help import members
from pipelines.core.frozen import flat
from pipelines.core.hyperparameters import DRAWN_FIRST, NEVER_SEARCHED
from pipelines.core.optimizers import Adam, CosineSchedule, ExponentialSchedule, StepSchedule, TrapezoidSchedule
from pipelines.tuning import space
from pipelines.tuning.space import changed, samples, searched
from tests.toy_data import toy_config

FIELDS = {name: one.path for name, one in HYPERPARAMETERS.items()}
CHOICES = [name for name, one in HYPERPARAMETERS.items() if one.is_choice]


def finite(value):
    return not isinstance(value, float) or math.isfinite(value)


VALUES = {name: st.from_type(get_args(one.values)[0]).filter(finite) for name, one in HYPERPARAMETERS.items()} | {
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


CONFIG = toy_config(schedule=ExponentialSchedule())
# With every optimizer and every schedule, each of which has other fields.
NEEDED = {StepSchedule: {"boundaries": (1,)}, TrapezoidSchedule: {"warmup": 0, "decay": 0}}
CONFIGS = [
    toy_config(**{section: member(**NEEDED.get(member, {}))})
    for section in ("optimizer", "schedule")
    for member in members(Config.model_fields[section]).values()
]
EXCLUSIVE = ({"mixup", "cutmix"}, {"class_weights", "sampling"})


def test_every_parameter_is_a_field_of_a_configuration():
    assert set(FIELDS) == set(Space.model_fields) == set(VALUES)
    assert set(FIELDS.values()) <= {name for config in CONFIGS for name in flat(config)}


def test_every_other_field_is_excluded_or_a_list():
    left = {name for config in CONFIGS for name in flat(config)} - set(FIELDS.values())
    lists = {name for config in CONFIGS for name, value in flat(config).items() if isinstance(value, tuple)}
    assert left - NEVER_SEARCHED == {"model.stages", *lists}
    assert left >= NEVER_SEARCHED


def test_the_order_of_the_first_parameters_and_the_names_of_all_stay():
    # Files of searches and recipes have the names; a search of an earlier version draws in this order.
    assert list(FIELDS.items())[: len(DRAWN_FIRST)] == list(DRAWN_FIRST.items())
    later = (
        "hidden initializer batch_normalization freeze scale offset contrast mean pad mirror clip_norm ema nesterov "
        "bias_multiplier epsilon beta_1 beta_2 decay_steps warmup warmup_steps schedule_decay class_weights sampling"
    )
    assert set(later.split()) <= set(FIELDS)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.optimizer.name}-{config.schedule.kind}")
@settings(max_examples=5)
@given(data=st.data())
def test_every_field_of_a_configuration_is_trained_with_the_value_drawn(config, data):
    for name, path in FIELDS.items():
        if path in flat(config):
            value = data.draw(VALUES[name])
            assert flat(changed(config, {name: value}))[path] == value


@given(
    st.fixed_dictionaries(
        {}, optional={name: drawn for name, drawn in VALUES.items() if FIELDS[name] in flat(CONFIG)}
    ).filter(lambda values: not any(pair <= values.keys() for pair in EXCLUSIVE))
)
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
        ({"momentum": (0.5, 0.9)}, {"optimizer": Adam()}, "without --optimizer.name sgd or muon"),
        ({"weight_decay": (0.001, 0.1)}, {"optimizer": Adam()}, "without --optimizer.name sgd, adamw, lion or muon"),
        ({"beta_1": (0.8, 0.95)}, {}, "--search.beta-1 has no effect without --optimizer.name lion"),
        ({"freeze": (0, 2)}, {}, "--search.freeze has no effect without --from"),
        ({"whitened": (False, True)}, {"start_from": "run"}, "without a net that has not been trained, and no --from"),
        ({"offset": (-1.0, 1.0)}, {"preprocess": {"mean": "channel"}}, "without --preprocess.mean none"),
        ({"offset": (-1.0, 1.0)}, {"preprocess": {"contrast": 1.0}}, "without images whose contrast is not normalized"),
        ({"scale": (0.1, 1.0)}, {"preprocess": {"contrast": 1.0}}, "without images whose contrast is not normalized"),
        ({"small_share": (0.2, 0.8)}, {}, "--search.small-share has no effect without --small-side"),
        ({"decay": (0.5, 0.9)}, {"schedule": CosineSchedule()}, "without --schedule.kind step or exponential"),
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


def test_an_offset_that_only_some_trials_cancel_is_searched():
    config = toy_config(preprocess={"mean": "channel"})
    space.check(Space(offset=(-1.0, 1.0), mean=("none", "channel")), config)


def test_samples_are_all_choices_and_numbers_near_both_ends_of_a_range():
    assert samples("mirror", (False, True)) == (False, True)
    assert samples("mixup", (0.0, 2.0)) == pytest.approx((0.02, 1.98))


def test_numbers_above_zero_without_an_upper_limit_are_drawn_on_a_logarithmic_scale():
    logarithmic = [name for name, one in HYPERPARAMETERS.items() if one.logarithmic]
    assert {"learning_rate", "weight_decay", "clip_norm", "epsilon", "bias_multiplier"} <= set(logarithmic)
    assert not {"momentum", "ema", "mixup", "transform_bias", "decay"} & set(logarithmic)


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_can_be_searched(name):
    recipe = recipes.get(name)
    space.check(recipe.search, recipe.config)
    for parameter, bounds in searched(recipe.search).items():
        for value in bounds:
            assert isinstance(changed(recipe.config, {parameter: value}), Config)


@settings(max_examples=5)
@given(st.data())
def test_choices_and_ranges_are_distinguished_by_what_a_space_accepts(data):
    for name in FIELDS:
        one = data.draw(VALUES[name])
        if name in CHOICES:
            assert searched(Space(**{name: (one,)})) == {name: (one,)}
        else:
            with pytest.raises(ValidationError, match="is a range"):
                Space(**{name: (one,)})


def test_settings_are_counted_unless_one_is_a_range():
    assert space.count(Space(activation=("relu", "tanh"), pad=(0, 2, 4))) == 6
    assert space.count(Space(activation=("relu", "tanh"), dropout=(0.0, 0.5))) == math.inf

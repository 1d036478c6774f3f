"""The recipes against the numbers of the paper, and against the nets of the library."""

import pytest

from highway_keras import presets
from pipelines import recipes
from pipelines.core.config import ModelConfig
from pipelines.core.errors import UserError
from pipelines.core.frozen import flat
from pipelines.recipes.provenance import tags
from pipelines.recipes.twins import KINDS
from tests.toy_data import changed_fields

ORIGINALS = (
    "demo",
    "mnist_conv_32",
    "mnist_conv_16",
    "cifar10_19",
    "cifar100_19",
    "mnist_conv_32_modern",
    "cifar10_modern",
    "cifar100_modern",
    "fitnet_a",
    "fitnet_b",
    "fitnet_c",
    "mnist_dense_10",
    "mnist_dense_50",
    "mnist_dense_100",
    "cifar100_dense_50",
    "mnist_dense_1000",
    "factor",
    "table",
)
# A demonstration, and a net that is too deep to have twins.
ALONE = ("demo", "mnist_dense_1000")
PAPER_SGD = {
    "optimizer.name": "sgd",
    "optimizer.momentum": 0.9,
    "optimizer.nesterov": True,
    "optimizer.bias_multiplier": 2.0,
    "optimizer.clip_norm": None,
    "optimizer.ema": None,
    "schedule.kind": "step",
    "schedule.factor": 0.1,
    "batch_size": 100,
    "label_smoothing": 0.0,
    "validation": 0,
}
MNIST = {
    **PAPER_SGD,
    "data": "mnist",
    "preprocess.scale": 1 / 256,
    "preprocess.contrast": None,
    "preprocess.mean": "none",
    "augment.pad": 0,
    "augment.mirror": False,
    "optimizer.learning_rate": 0.01,
    "schedule.boundaries": (60_000, 120_000),
    "epochs": 300,
}
CIFAR = {
    **PAPER_SGD,
    "preprocess.contrast": 0.67,
    "preprocess.mean": "pixel",
    "augment.pad": 8,
    "augment.mirror": True,
    "optimizer.learning_rate": 0.025,
    "schedule.boundaries": (100_000, 150_000, 175_000),
    "epochs": 400,
}


def test_names_are_the_originals_each_with_its_twins():
    expected = [
        name
        for original in ORIGINALS
        for name in (original, *([] if original in ALONE else [f"{original}_plain", f"{original}_residual"]))
    ]
    assert recipes.names() == tuple(expected)


def test_the_error_of_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UserError, match=r"there is no recipe 'cifar10_18'\. Did you mean 'cifar10_19'"):
        recipes.get("cifar10_18")


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("mnist_conv_32", MNIST),
        ("mnist_conv_16", MNIST),
        ("cifar10_19", CIFAR | {"data": "cifar10"}),
        ("cifar100_19", CIFAR | {"data": "cifar100"}),
        ("fitnet_a", CIFAR | {"data": "cifar10"}),
        ("fitnet_b", CIFAR | {"data": "cifar10"}),
        ("fitnet_c", CIFAR | {"data": "cifar10"}),
    ],
)
@pytest.mark.parametrize("twin", ["", *(f"_{kind}" for kind in KINDS)])
def test_the_numbers_of_the_paper(name, twin, numbers):
    values = flat(recipes.get(name + twin).config)
    assert {field: values[field] for field in numbers} == numbers


@pytest.mark.parametrize(
    ("name", "steps"), [("mnist_conv_32", 180_000), ("cifar10_19", 200_000), ("cifar100_19", 200_000)]
)
def test_the_recorded_number_of_steps(name, steps):
    config = recipes.get(name).config
    examples = {"mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000}[config.data]
    assert config.epochs * (examples // config.batch_size) == steps
    assert max(config.schedule.boundaries) < steps


@pytest.mark.parametrize("name", recipes.names())
def test_momentum_is_not_a_tenth_of_what_was_meant(name):
    # An earlier implementation trained with momentum 0.09 instead of 0.9, and nothing failed.
    optimizer = recipes.get(name).config.optimizer
    assert optimizer.name != "sgd" or optimizer.momentum == 0.9


@pytest.mark.parametrize("name", recipes.names())
def test_each_number_has_its_provenance_once(name):
    recipe = recipes.get(name)
    groups = recipe.provenance
    tagged = [*groups.recorded, *groups.count_matched, *groups.assumed]
    values = flat(recipe.config)
    assert len(tagged) == len(set(tagged))
    assert set(tagged) <= set(values)
    assert changed_fields(recipe.config) <= set(tagged)


def test_recorded_and_assumed_numbers_are_tagged_as_such():
    assert tags(recipes.get("mnist_conv_32"))["optimizer.learning_rate"] == "recorded"
    assert tags(recipes.get("cifar10_19"))["optimizer.learning_rate"] == "recorded"
    assert tags(recipes.get("cifar10_19"))["preprocess.contrast"] == "assumed"
    assert tags(recipes.get("fitnet_a"))["model.preset"] == "count-matched"


@pytest.mark.parametrize("name", [name for name in recipes.names() if name.endswith(KINDS)])
def test_a_twin_differs_in_its_net_alone(name):
    twin, original = recipes.get(name), recipes.get(name.rpartition("_")[0])
    values, others = flat(twin.config), flat(original.config)
    assert {field for field in values if values[field] != others[field]} == {"recipe", "model.preset"}
    assert twin.config.model.preset == f"{original.config.model.preset}_{name.rpartition('_')[2]}"
    assert set(tags(twin).values()) == {"assumed"}
    assert set(tags(twin)) == set(tags(original))


@pytest.mark.parametrize("name", recipes.names())
def test_the_header_has_command_data_and_measurement(name):
    header = recipes.header(name)
    for entry in ("Command ", "Net ", "Data ", "Sources ", "Measured "):
        assert f"\n{entry}" in header
    if name in ORIGINALS:
        assert name in header


@pytest.mark.parametrize("name", recipes.names())
def test_the_net_of_a_recipe_is_its_preset_without_overrides(name):
    # `tests/unit/highway_keras/models/test_presets.py` builds all presets and counts their parameters.
    import highway_keras

    model = recipes.get(name).config.model
    assert model.preset in highway_keras.presets()
    assert model == ModelConfig(preset=model.preset)


@pytest.mark.parametrize(("name", "parameters"), [("mnist_conv_32", 151_690), ("cifar10_19", 2_256_838)])
def test_the_printed_parameter_counts(name, parameters):
    import highway_keras

    assert highway_keras.from_preset(recipes.get(name).config.model.preset).count_params() == parameters


def test_each_net_of_the_library_has_a_recipe_of_its_name():
    import highway_keras

    assert {recipes.get(name).config.model.preset for name in highway_keras.presets()} == set(highway_keras.presets())


def test_presets_are_checked_without_the_library():
    for preset in presets():
        recipes.check_preset(recipes.get("demo").config.model_copy(update={"model": ModelConfig(preset=preset)}))
    recipes.check_preset(recipes.get("demo").config.model_copy(update={"model": ModelConfig(preset="mine:net")}))
    with pytest.raises(UserError, match="there is no preset 'cifar10_9'"):
        recipes.check_preset(recipes.get("demo").config.model_copy(update={"model": ModelConfig(preset="cifar10_9")}))

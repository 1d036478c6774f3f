import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from pipelines import recipes
from pipelines.core.config import Config, ModelConfig, Subset
from pipelines.core.field_help import members
from pipelines.core.frozen import flat
from pipelines.core.optimizers import CosineSchedule
from tests.toy_data import toy_config

from .strategies import configs


@given(configs)
def test_json_round_trip(config):
    assert Config.model_validate_json(config.model_dump_json(indent=2)) == config


def test_json_is_plain(small):
    assert json.loads(small.model_dump_json())["optimizer"]["momentum"] == 0.9


def test_a_configuration_is_immutable(small):
    with pytest.raises(ValidationError):
        small.epochs = 3
    with pytest.raises(ValidationError):
        small.optimizer.momentum = 0.5


@pytest.mark.parametrize(
    "values",
    [{"preset": "x", "transform_bias": "automatic"}, {"preset": "x", "depth": 0}, {}],
)
def test_values_out_of_range_are_refused(values):
    with pytest.raises(ValidationError):
        ModelConfig(**values)


def test_every_field_is_documented():
    def untold(model: type[BaseModel]) -> list[str]:
        missing = []
        for name, field in model.model_fields.items():
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                missing += untold(kind)
            elif members(field):
                # The docstring of a member is the help of its tag.
                assert all(member.__doc__ for member in members(field).values())
                missing += [one for member in members(field).values() for one in untold(member)]
            elif not field.description and name not in ("name", "kind"):
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


def test_nothing_is_held_out_of_a_seeded_draw():
    with pytest.raises(ValidationError, match=r"none can be held out.*subset\.seed=0, validation=100"):
        Config(recipe="x", model=ModelConfig(preset="x"), data="mnist", validation=100, subset=Subset(seed=0))


def test_a_trained_net_is_not_whitened():
    with pytest.raises(ValidationError, match=r"starts from a trained net \(--from\) or as a whitening .*not both"):
        toy_config(start_from="runs/demo", model=ModelConfig(preset="x", whitened=True))


def test_a_net_that_is_not_whitened_is_stored_as_by_earlier_versions(small):
    assert "whitened" not in small.model.model_dump()
    whitened = toy_config(model=ModelConfig(preset="x", whitened=True))
    assert Config.model_validate_json(whitened.model_dump_json()) == whitened


@pytest.mark.parametrize(
    ("side", "share", "epochs", "small"), [(0, 0.5, 10, 0), (8, 0.5, 1, 0), (8, 0.5, 3, 1), (8, 0.29, 100, 29)]
)
def test_the_first_epochs_are_those_of_smaller_images(side, share, epochs, small):
    assert toy_config(small_side=side, small_share=share, epochs=epochs).small_epochs == small


def test_smaller_images_keep_their_shape():
    config = toy_config(small_side=24)
    assert [config.small_size(*size) for size in ((32, 32), (48, 32), (32, 60))] == [(24, 24), (36, 24), (24, 45)]


@given(configs, st.integers(0, 100))
def test_another_seed_draws_another_subset_if_draws_are_seeded(config, seed):
    other = config.seeded(seed)
    before, after = flat(config), flat(other)
    assert (other.seed, other.subset.seed) == (seed, None if config.subset.seed is None else seed)
    assert {field for field in before if before[field] != after[field]} <= {"seed", "subset.seed"}
    assert flat(config.seeded(seed, draws=3)) == after | {"subset.seed": other.subset.seed and seed % 3}


GOLDEN = Path(__file__).parents[3] / "golden" / "configs"


@pytest.mark.parametrize("name", ["demo", "mnist_dense_10", "mnist_dense_1000", "cifar10_19"])
def test_a_configuration_of_version_0_1_still_opens(name):
    # In that version, one model had the fields of all optimizers, and another those of all schedules.
    kept = (GOLDEN / f"{name}.json").read_text()
    assert {"momentum", "epsilon"} <= json.loads(kept)["optimizer"].keys()
    expected = recipes.get(name).config
    if name == "demo":
        # Its warm-up is a share now, of the same 100 of 1,440 steps.
        assert round(expected.schedule.warmup * expected.epochs * 4000 / expected.batch_size) == 100
        expected = expected.model_copy(update={"schedule": CosineSchedule(warmup_steps=100)})
    assert Config.model_validate_json(kept) == expected


def test_a_recipe_file_of_version_0_1_still_opens():
    assert recipes.named_recipe(str(GOLDEN / "best.json")) == recipes.get("factor")


def test_a_configuration_from_before_a_field_was_added_still_opens():
    # Fields added since version 0.1 have defaults that change nothing.
    kept = json.loads((GOLDEN / "mnist_dense_1000.json").read_text())
    del kept["subset"], kept["preprocess"]["offset"], kept["optimizer"]["epsilon"], kept["model"]["initializer"]
    assert Config.model_validate_json(json.dumps(kept)) == recipes.get("mnist_dense_1000").config


def test_classes_are_balanced_once():
    for field in ("class_weights", "sampling"):
        assert getattr(toy_config(**{field: "balanced"}), field) == "balanced"
    with pytest.raises(ValidationError, match="balanced by class_weights or by sampling"):
        toy_config(class_weights="balanced", sampling="balanced")

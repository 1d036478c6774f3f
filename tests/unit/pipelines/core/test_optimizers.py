import pytest
from pydantic import ValidationError

from pipelines.core.config import Config, ModelConfig
from pipelines.core.optimizers import SGD, Adam, AdamW, CosineSchedule, StepSchedule


@pytest.mark.parametrize(
    ("member", "values"),
    [
        (SGD, {"learning_rate": 0}),
        (SGD, {"learning_rate": float("nan")}),
        (SGD, {"learning_rate": float("inf")}),
        (SGD, {"momentum": 1}),
        (SGD, {"momentum": -0.1}),
        (SGD, {"ema": 1}),
        (SGD, {"clip_norm": 0}),
        (SGD, {"name": "no_such"}),
        (SGD, {"momentun": 0.9}),
        (Adam, {"momentum": 0.9}),
        (AdamW, {"weight_decay": -0.1}),
        (StepSchedule, {}),
        (CosineSchedule, {"boundaries": [3]}),
        (StepSchedule, {"boundaries": [5, 3]}),
        (StepSchedule, {"boundaries": [3, 3]}),
        (StepSchedule, {"boundaries": [0]}),
    ],
)
def test_values_out_of_range_are_refused(member, values):
    with pytest.raises(ValidationError):
        member(**values)


@pytest.mark.parametrize("group", [{"optimizer": {"name": "adam", "momentum": 0.9}}, {"schedule": {"factor": 0.5}}])
def test_a_field_of_another_member_is_refused(group):
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Config(recipe="x", model=ModelConfig(preset="x"), data="mnist", **group)

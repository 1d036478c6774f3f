import os
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro
from hypothesis import given, settings
from pydantic import Field

from pipelines import recipes
from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen, flat
from pipelines.core.parsing import parse
from pipelines.verbs.train import parse_train

from .strategies import configs


def config(*words):
    return parse_train(list(words)).config


def refused(*words):
    with pytest.raises(UserError) as caught:
        parse_train(list(words))
    return str(caught.value)


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_alone_is_the_recipe(name):
    assert config(name) == recipes.get(name).config


def test_overrides_and_nothing_else():
    words = """mnist_conv_32 --epochs 2 --data mnist_5k --optimizer.learning-rate 0.02 --schedule.kind cosine
        --model.transform-bias -3"""
    found = config(*words.split())
    recipe = flat(recipes.get("mnist_conv_32").config)
    changed = {field: value for field, value in flat(found).items() if field not in recipe or value != recipe[field]}
    assert changed == {
        "epochs": 2,
        "data": "mnist_5k",
        "optimizer.learning_rate": 0.02,
        "schedule.kind": "cosine",
        "schedule.warmup": 0.0,
        "schedule.warmup_steps": 0,
        "model.transform_bias": -3.0,
    }
    assert recipe.keys() - flat(found).keys() == {"schedule.boundaries", "schedule.factor"}


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("--model.transform-bias auto", "model.transform_bias", "auto"),
        ("--model.transform-bias none", "model.transform_bias", None),
        ("--model.transform-bias=-3", "model.transform_bias", -3.0),
        ("--model.transform_bias -2e-1", "model.transform_bias", -0.2),
        ("--schedule.boundaries 5 7", "schedule.boundaries", (5, 7)),
        ("--augment.mirror", "augment.mirror", True),
        ("--subset.train 6000", "subset.train", 6000),
        ("--subset.seed 3", "subset.seed", 3),
        ("--model.initializer fan_in_uniform", "model.initializer", "fan_in_uniform"),
        ("--preprocess.offset -1", "preprocess.offset", -1.0),
        ("--optimizer.no-nesterov", "optimizer.nesterov", False),
        ("--optimizer.name adam", "optimizer.learning_rate", 0.001),
        ("--optimizer.name=sgd --optimizer.name=adamw", "optimizer.weight_decay", 0.004),
        ("--optimizer.name sgd", "optimizer.bias_multiplier", 2.0),
        ("--optimizer.weight-decay 0.1 --optimizer.name adamw", "optimizer.weight_decay", 0.1),
        ("--preprocess.mean none", "preprocess.mean", "none"),
        ("--optimizer.clip-norm None", "optimizer.clip_norm", None),
        ("--seed=7", "seed", 7),
    ],
)
def test_a_field(words, field, value):
    assert flat(config("mnist_conv_32", *words.split()))[field] == value


@settings(max_examples=30, deadline=None)
@given(configs)
def test_every_field_can_be_given(wanted):
    words = []
    for field, value in flat(wanted).items():
        group, dot, name = field.rpartition(".")
        if field == "recipe":
            continue
        name = "from" if name == "start_from" else name
        # A switch that may also be none takes a word.
        if isinstance(value, bool) and field != "model.batch_normalization":
            words.append(f"--{group}{dot}{'' if value else 'no-'}{name}")
        elif isinstance(value, tuple):
            words += [f"--{group}{dot}{name}", *map(str, value)]
        else:
            words += [f"--{group}{dot}{name}", "none" if value is None else str(value)]
    assert config("demo", *words) == wanted


def test_a_step_schedule_needs_boundaries():
    assert "a step schedule needs boundaries" in refused("demo", "--schedule.kind", "step")
    assert config("demo", "--schedule.kind", "step", "--schedule.boundaries", "9").schedule.boundaries == (9,)


def test_boundaries_that_were_given_are_not_dropped():
    words = ("--schedule.kind", "cosine", "--schedule.boundaries", "60000", "120000")
    assert "no option '--schedule.boundaries' with --schedule.kind cosine" in refused("mnist_conv_32", *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "which recipe?"),
        ("--epochs 3", "which recipe?"),
        ("mnist_conv_33", "there is no recipe 'mnist_conv_33'. Did you mean 'mnist_conv_32'?"),
        ("demo --epoch 3", "there is no option '--epoch'. Did you mean '--epochs'?"),
        ("demo --epoch=3", "there is no option '--epoch'. Did you mean '--epochs'?"),
        ("demo --learning_rate 3", "Did you mean '--optimizer.learning-rate'?"),
        ("demo --ema 0.9", "Did you mean '--optimizer.ema'?"),
        ("demo --kind step", "Did you mean '--schedule.kind'?"),
        ("demo --transform-bias 1", "Did you mean '--model.transform-bias'?"),
        ("demo --lr 0.1", "Did you mean '--optimizer.learning-rate'?"),
        ("demo --bs 10", "Did you mean '--batch-size'?"),
        ("demo --recipe x", "there is no option '--recipe'."),
        (
            "demo --optimizer.name adam --optimizer.momentum 0.5",
            "there is no option '--optimizer.momentum' with --optimizer.name adam, which takes "
            "--optimizer.learning-rate, --optimizer.clip-norm, --optimizer.ema, --optimizer.epsilon. It belongs to sgd",
        ),
        ("demo --optimizer.epsilon 1", "It belongs to adam and"),
        ("demo --optimizer.name adam --optimizer.no-nesterov", "It belongs to sgd."),
        ("demo --optimizer.name adam --momentum 0.5", "there is no option '--momentum'."),
        ("demo --optimizer.name no_such", "--optimizer.name must be 'sgd', 'adam'"),
        ("demo --schedule.kind constant --schedule.factor 0.5", "constant, which takes no options."),
        ("demo 3", "unexpected argument '3'."),
        (
            "demo --model.stages 32",
            "--model.stages must be one or more values, each a JSON object with filters, entry,",
        ),
        ("demo --model.stages {", "each a JSON object with filters, entry, padding, blocks, pool, dropout or none."),
        ('demo --model.stages {"filters":0}', "Received: ['{\"filters\":0}']."),
        ("demo --augment.mirror yes", "unexpected argument 'yes'."),
        ("demo --epochs 0", "--epochs must be a whole number of at least 1. Received: '0'."),
        ("demo --epochs 1.5", "--epochs must be a whole number of at least 1. Received: '1.5'."),
        ("demo --optimizer.momentum 1", "--optimizer.momentum must be a number of at least 0 and less than 1."),
        ("demo --optimizer.learning-rate nan", "--optimizer.learning-rate must be a number greater than 0."),
        ("demo --optimizer.learning-rate inf", "greater than 0. Received: 'inf', which is not finite."),
        ("demo --precision float16", "--precision must be 'auto', 'float32', 'mixed_bfloat16' or 'mixed_float16'."),
        ("demo --epochs none", "--epochs must be a whole number of at least 1. Received: 'none'."),
        ("demo --schedule.kind step --schedule.boundaries 9 5", "schedule: boundaries must rise."),
    ],
)
def test_errors_are_reported(words, message):
    assert message in refused(*words.split())


def test_all_errors_are_reported_at_once():
    assert len(refused("demo", "--epochs", "0", "--seed", "-1").splitlines()) == 2


def test_the_folder_of_a_new_run():
    found = parse_train(["demo", "--run", "runs/a", "--data-dir", "/data"])
    assert (found.run, found.resume, found.data_dir) == (Path("runs/a"), None, Path("/data"))
    found = parse_train(["demo"])
    assert (found.run, found.resume, found.data_dir) == (None, None, None)


@pytest.mark.parametrize("words", [["demo"], ["--resume", "runs/a"]])
def test_how_often_the_state_is_saved(words):
    assert parse_train(words).checkpoint_steps == "auto"
    assert parse_train([*words, "--checkpoint-steps", "auto"]).checkpoint_steps == "auto"
    assert parse_train([*words, "--checkpoint-steps", "100"]).checkpoint_steps == 100
    assert "--checkpoint-steps" in refused(*words, "--checkpoint-steps", "0")


@pytest.mark.parametrize("words", ["--resume runs/a --data-dir d", "--data-dir=d --resume=runs/a"])
def test_a_resumed_run_keeps_its_own_config(words):
    found = parse_train(words.split())
    assert (found.config, found.run, found.resume, found.data_dir) == (None, None, Path("runs/a"), Path("d"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--resume runs/a --epochs 4", "--epochs"),
        ("--resume=runs/a --optimizer.learning_rate=0.1", "--optimizer.learning_rate=0.1"),
        ("--resume runs/a --run runs/b", "--run"),
        ("demo --resume runs/a", "demo"),
        ("--resume=runs/a demo", "demo"),
    ],
)
def test_a_resumed_run_takes_no_recipe_and_no_field(words, named):
    message = refused(*words.split())
    assert message.startswith(f"'{named}' cannot be given with --resume: a resumed run keeps its configuration.")
    assert "--from RUN --epochs N" in message


def test_a_misspelt_option_of_a_resumed_run_is_found():
    assert "Did you mean '--devices'?" in refused("--resume", "runs/a", "--devicse", "2")


def test_help_of_a_recipe_shows_every_field_with_its_value(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_train(["mnist_conv_32", "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    for field in flat(recipes.get("mnist_conv_32").config):
        assert field == "recipe" or f"--{field.replace('_', '-').replace('start-from', 'from')}" in printed
    assert "--recipe" not in printed
    assert "60000 120000" in printed
    assert "Examples per step." in printed
    assert "sgd|adam|" in printed


def test_help_of_another_optimizer(capsys):
    with pytest.raises(SystemExit):
        parse_train(["mnist_conv_32", "--optimizer.name", "adamw", "--help"])
    printed = capsys.readouterr().out
    assert "--optimizer.weight-decay" in printed
    assert "--optimizer.momentum" not in printed


def test_help_without_a_recipe_names_them(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_train(["--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert set(recipes.names()) <= set(printed.split())
    for option in ("--run", "--resume", "--data-dir", "--checkpoint-steps"):
        assert option in printed


class Arguments(Frozen):
    """Does a thing."""

    run: tyro.conf.Positional[Path]
    """The run."""
    images: tyro.conf.Positional[Annotated[tuple[Path, ...], Field(min_length=1)]]
    """The images."""
    weights: Literal["final", "best"] = "final"
    """The weights."""
    to: Path | None = None
    """The folder."""


def other(*words):
    return parse(Arguments, list(words), "highway thing", "Does a thing.")


def test_other_verbs():
    found = other("runs/a", "a.png", "b.png", "--to", "x")
    assert found == Arguments(run="runs/a", images=("a.png", "b.png"), to="x")


def test_positional_arguments_are_named_as_such(capsys):
    with pytest.raises(UserError, match=r"^IMAGES must be one or more values, each a path\."):
        other("runs/a")
    with pytest.raises(UserError, match=r"^--weights must be 'final' or 'best'\. Received: 'beast'"):
        other("runs/a", "a.png", "--weights", "beast")
    with pytest.raises(SystemExit):
        other("--help")
    assert "usage: highway thing" in capsys.readouterr().out


def test_what_is_missing_is_named():
    with pytest.raises(UserError, match=r"^missing: RUN\. `highway thing --help` describes what is expected\.$"):
        other("--weights", "best")
    with pytest.raises(UserError, match=r"^--to needs a value\. `highway thing --help` describes it\.$"):
        other("runs/a", "a.png", "--to")


def test_lines_of_help_are_not_those_of_the_docstring(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    class Long(Frozen):
        """Does a thing."""

        to: Path | None = None
        """The folder,
        which may exist."""

    with pytest.raises(SystemExit):
        parse(Long, ["--help"], "highway thing")
    assert "The folder, which may exist." in capsys.readouterr().out


def test_an_unknown_option_before_positional_arguments_is_reported():
    class Optional(Frozen):
        """Does a thing."""

        name: tyro.conf.Positional[str | None] = None

    with pytest.raises(UserError, match="no option '--nam'"):
        parse(Optional, ["--nam", "x"], "highway thing", "Does a thing.")


@pytest.mark.parametrize("words", [["demo", "--epochs"], ["--resume"]])
def test_a_missing_value_is_named(words):
    assert refused(*words).startswith(f"{words[-1]} needs a value.")


@pytest.mark.parametrize("option", ["--run", "--data", "--data-dir"])
def test_a_name_that_is_not_in_utf_8_is_refused(option):
    assert refused("demo", option, os.fsdecode(b"runs/caf\xe9")) == (
        rf"{option} must be in UTF-8. Received: runs/caf\xe9. Rename it, and repeat the command."
    )
    assert parse_train(["demo", option, "runs/caf\u00e9"])

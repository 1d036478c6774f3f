from pathlib import Path

import pytest

from pipelines import recipes
from pipelines.core.config import Recipe
from pipelines.core.errors import UserError
from pipelines.core.optimizers import ExponentialSchedule
from pipelines.tuning.search import Search
from pipelines.verbs.train import parse_train
from pipelines.verbs.tune import parse_tune
from tests.toy_data import toy_config


def refused(words):
    with pytest.raises(UserError) as caught:
        parse_tune(words.split())
    return str(caught.value)


def test_a_recipe_alone():
    found = parse_tune(["demo"])
    plan = found.search.plan
    assert plan.space == recipes.get("demo").search
    assert plan.config == recipes.get("demo").config
    assert (plan.algorithm, plan.trials, plan.label) == ("random", 20, "")
    assert found.search == Search(plan, Path("searches/demo"))
    assert (found.minutes, found.retrain) == (None, 0)


def test_a_search_on_a_cluster():
    search = parse_tune(["demo", "--cluster", "10.0.0.1:6379", "--cores-per-trial", "4"]).search
    assert (search.cluster, search.cores) == ("10.0.0.1:6379", 4)
    assert parse_tune(["demo", "--cluster", "auto"]).search.cores == 1


def test_a_space_given_on_the_command_line_overrides_the_recipes():
    words = (
        "demo --search.transform-bias -10 -1 --search.dropout --search.depth 2 4 8 --epochs 3 --optimizer.clip-norm 1"
    )
    found = parse_tune(words.split()).search.plan
    assert found.space.transform_bias == (-10.0, -1.0)
    assert found.space.dropout == ()
    assert found.space.depth == (2, 4, 8)
    assert found.space.learning_rate == recipes.get("demo").search.learning_rate
    assert (found.config.epochs, found.config.optimizer.clip_norm) == (3, 1.0)


def test_words_and_truth_values_are_searched_as_choices():
    words = "demo --search.mirror true false --search.mean none pixel --search.warmup 0 0.3 --search.pad 0 2"
    found = parse_tune(words.split()).search.plan.space
    assert (found.mirror, found.mean, found.warmup, found.pad) == ((True, False), ("none", "pixel"), (0.0, 0.3), (0, 2))


def test_hyperband_decides_the_number_of_trials():
    assert parse_tune(["demo", "--algorithm", "hyperband"]).search.plan.trials is None
    assert "Leave out --trials" in refused("demo --algorithm hyperband --trials 3")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "which recipe?"),
        ("--trials 3", "which recipe?"),
        ("dmeo", "Did you mean 'demo'?"),
        (
            "demo --transform-bias -5 -1",
            "there is no option '--transform-bias'. Did you mean '--model.transform-bias'?",
        ),
        ("demo --search.bias -5 -1", "there is no option '--search.bias'"),
        ("demo --search.optimizer.ema 0.9 0.99", "Did you mean '--search.ema'?"),
        ("demo --search.transform-bias -1 -5", "transform_bias is a range, LOW HIGH"),
        (
            "demo --search.transform-bias -1",
            "--search.transform-bias: transform_bias is a range, LOW HIGH. Received: -1",
        ),
        ("demo --search.activation relu relu", "--search.activation: choices of activation must be unique. Received: "),
        ("demo --search.decay 0.5 0.9", "--search.decay has no effect without --schedule.kind step or exponential"),
        ("demo --search.magnitude 0.1 0.5", "--search.magnitude has no effect without --augment.rand-augment 2"),
        ("demo --search.mixup 0 0.4 --search.cutmix 0 1", "images are mixed by mixup or by CutMix, not by both"),
        ("cifar10_modern --optimizer.name muon", "from 0.02 to 1, are for sgd, and muon needs others. Name them with"),
        ("demo --search.momentum 0.5 1.5", "--search.momentum must be"),
        ("demo --model.preset mnist_dense_5", "there is no preset 'mnist_dense_5'. Did you mean 'mnist_dense_50'?"),
        ("demo --workers 0", "--workers must be a whole number of at least 1"),
        ("demo --budget 2", "--budget must be"),
        ("demo --deadline 0", "--deadline must be a number greater than 0"),
        ("demo --cores-per-trial 2", "--cores-per-trial is for --cluster"),
        ("demo --cluster auto --workers 2", "--workers is for this machine"),
        ("demo --cluster auto --workers 1", "--workers is for this machine"),
        ("depth_study --budget 0.01", "is a study: highway reproduce optimization"),
        ("missing.json", "the recipe file missing.json cannot be read"),
    ],
)
def test_errors_are_reported(words, message):
    assert message in refused(words)


def test_help_names_recipes_the_study_and_the_command_for_several_machines(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_tune(["--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert {*recipes.names(), "optimization"} <= set(printed.split())
    assert "--cluster 10.0.0.1:6379" in printed


def test_help_of_a_recipe_shows_its_space(capsys):
    with pytest.raises(SystemExit):
        parse_tune(["mnist_dense_10", "--help"])
    printed = capsys.readouterr().out
    assert "--search.transform-bias" in printed
    assert "-10.0 -1.0" in printed
    assert "--deadline" in printed
    assert "by the workers or on the cluster" in " ".join(printed.replace("│", " ").split())


def test_a_recipe_file_is_trained_and_searched_as_a_recipe(tmp_path):
    recipe = recipes.get("mnist_dense_10").model_copy(
        update={"config": toy_config(epochs=7, schedule=ExponentialSchedule())}
    )
    path = tmp_path / "best.json"
    path.write_text(recipe.model_dump_json())
    assert Recipe.model_validate_json(path.read_bytes()) == recipe
    assert parse_train([str(path)]).config == recipe.config
    assert parse_train([str(path), "--epochs", "2"]).config.epochs == 2
    assert parse_tune([str(path), "--trials", "3"]).search.plan.space == recipe.search


def test_a_file_that_is_not_a_recipe_is_reported_by_its_fields(tmp_path):
    path = tmp_path / "best.json"
    path.write_text('{"source": "me", "published": "none", "provenance": {}}')
    with pytest.raises(UserError, match=r"best.json is not a recipe file: config is missing"):
        parse_train([str(path)])

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from pipelines.core.config import Space
from pipelines.core.errors import UserError
from pipelines.tuning import results
from pipelines.tuning.search_state import Objective
from pipelines.verbs.train import parse_train

from .plans import CHOICES, SPACE, study_plan, toy_plan, toy_state, toy_trial
from .searches import hyperband_state


def rows(plan, state):
    return list(csv.DictReader(io.StringIO(results.table(plan, state))))


def test_each_trial_is_a_row():
    state = toy_state(
        toy_trial(0, 0.5, learning_rate=0.123456789),
        toy_trial(1, status="failed", reason="dead gates, all of them", seconds=1.25),
        toy_trial(2, 0.9, activation="tanh"),
        toy_trial(3, status="running"),
    )
    table = rows(toy_plan(), state)
    assert [row["status"] for row in table] == ["completed", "failed", "completed", "running"]
    assert [row["val_accuracy"] for row in table] == ["0.5", "", "0.9", ""]
    assert table[0]["learning_rate"] == "0.123457"
    assert table[1] | {"seconds": "1.2", "reason": "dead gates, all of them"} == table[1]
    assert table[3]["seconds"] == ""
    assert "budget" not in table[0]


def test_a_short_search_says_so_in_every_row_and_in_the_recipe():
    plan = toy_plan(trials=100, share=0.01, epochs=20)
    state = toy_state(toy_trial(0, 0.5), toy_trial(1, 0.6))
    assert {row["budget"] for row in rows(plan, state)} == {"budget 0.01: 10 of 100 trials, 2 of 20 epochs"}
    assert plan.label in results.recipe(plan, state, state.trials[0]).source
    assert plan.label in results.report(plan, state, {"toy": Path("searches/best.json")})


def test_the_next_commands_can_be_pasted():
    lines = results.report(toy_plan(), toy_state(toy_trial(0, 0.5)), {"toy": Path("my searches/best.json")})
    assert lines[-1] == "next: highway train 'my searches/best.json'; tensorboard --logdir 'my searches/tensorboard'"


def test_the_winner_is_a_recipe_that_train_takes(tmp_path):
    state = toy_state(toy_trial(0, 0.5), toy_trial(1, 0.9, learning_rate=0.25, transform_bias=-7.0), toy_trial(2, 0.9))
    plan = toy_plan()
    (path,) = results.write(tmp_path, plan, state).values()
    config = parse_train([str(path)]).config
    assert config == plan.configured(state.trials[1].values).model_copy(update={"recipe": "toy_tuned"})
    assert config.optimizer.learning_rate == 0.25
    recipe = results.recipe(plan, state, state.trials[1])
    assert recipe.search == SPACE
    assert "validation accuracy 90.00%, the highest of 3 completed trials" in recipe.measured


def test_each_net_of_a_study_has_its_winner(tmp_path):
    plan = study_plan(0.01)
    state = toy_state(
        toy_trial(0, 0.5, net="highway-10"),
        toy_trial(1, 0.7, net="plain-100"),
        toy_trial(2, 0.9, net="highway-10"),
    )
    assert {net: trial.number for net, trial in results.winners(plan, state).items()} == {
        "highway-10": "2",
        "plain-100": "1",
    }
    files = results.write(tmp_path, plan, state)
    assert parse_train([str(files["plain-100"])]).config.model.preset == "mnist_dense_50_plain"
    # A bias is sampled for every trial, without effect in nets without gates.
    assert [row["transform_bias"] for row in rows(plan, state)] == ["-2", "", "-2"]


def test_a_search_without_a_result_lists_the_reasons(tmp_path):
    failed = [toy_trial(number, status="failed", reason="dead gates") for number in range(3)]
    state = toy_state(*failed, toy_trial(4, status="failed", reason="the loss is no longer finite"))
    with pytest.raises(
        UserError, match=r"none of 4 trials has a result. 3 x dead gates. 1 x the loss is no longer finite"
    ):
        results.write(tmp_path, toy_plan(), state)
    assert (tmp_path / "trials.csv").exists()
    assert not (tmp_path / "best.json").exists()


def test_the_lowest_loss_wins(tmp_path):
    state = toy_state(toy_trial(0, 3.0), toy_trial(1, 2.0), objective=Objective("val_loss", "min"))
    assert results.winners(toy_plan(), state)["toy"].number == "1"
    assert "the lowest" in results.recipe(toy_plan(), state, state.trials[1]).measured


def test_the_recipe_of_a_hyperband_trial_has_the_full_schedule():
    plan = toy_plan("hyperband", trials=None, epochs=9)
    trial = replace(toy_trial(0, 0.5), epochs=3)
    recipe = results.recipe(plan, toy_state(trial), trial)
    assert recipe.config.epochs == 9
    assert recipe.source.startswith("trial 0 after 3 epochs of the hyperband search")


def test_a_space_with_fewer_settings_than_trials_is_reported():
    plan = toy_plan(trials=8, space=Space(activation=("relu", "tanh")))
    trials = [toy_trial(number, 0.5) for number in range(2)]
    lines = results.report(plan, toy_state(*trials), {"toy": Path("best.json")})
    assert "the space has no more than these 2 settings" in lines
    lines = results.report(plan, toy_state(*trials, over=False), {"toy": Path("best.json")})
    assert not any("no more" in line for line in lines)


def test_hyperband_says_that_its_space_is_small():
    plan = toy_plan("hyperband", trials=None, epochs=3, space=Space(activation=("relu", "tanh")))
    lines = results.report(plan, toy_state(*[toy_trial(0, 0.5)] * 3), {"toy": Path("best.json")})
    assert "the space has no more than these 2 settings" in lines
    assert not any("ended this search" in line for line in lines)


@pytest.mark.parametrize(("algorithm", "trials", "planned"), [("random", 40, 36), ("hyperband", None, 53)])
def test_a_search_that_an_earlier_version_ended_early_says_so(algorithm, trials, planned):
    plan = toy_plan(algorithm, trials=trials, epochs=27, space=CHOICES)
    state = toy_state(*(toy_trial(number, 0.5) for number in range(30)))
    lines = results.report(plan, state, {"toy": Path("best.json")})
    assert lines[0].startswith(f"an earlier version ended this search after 30 of {planned} trials.")
    assert not any("no more" in line for line in lines)


def content(logs, tag):
    events = EventAccumulator(str(logs)).Reload()
    return events.PluginTagToContent(metadata.PLUGIN_NAME)[tag]


def values(logs):
    start = metadata.parse_session_start_info_plugin_data(content(logs, metadata.SESSION_START_INFO_TAG))
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}


def names(logs):
    return [
        info.name for info in metadata.parse_experiment_plugin_data(content(logs, metadata.EXPERIMENT_TAG)).hparam_infos
    ]


def test_a_setting_is_one_session_with_its_epochs(tmp_path):
    results.write_hparams(tmp_path, toy_plan("hyperband", None, epochs=3), hyperband_state(9))
    logs = tmp_path / "tensorboard"
    assert {path.name for path in logs.iterdir() if path.is_dir()} == {"1", "2", "4", "5", "7", "8", "9", "10", "11"}
    assert names(logs) == ["learning_rate", "activation", "transform_bias", "epochs"]
    assert values(logs / "1")["epochs"] == 1
    assert values(logs / "9")["epochs"] == 3


@pytest.mark.parametrize(("net", "biased"), [("plain-10", False), ("highway-10", True)])
def test_a_net_without_gates_has_no_gate_bias(tmp_path, net, biased):
    trial = toy_trial(0, 0.5, net=net, momentum=0.5, decay=0.9)
    results.write_hparams(tmp_path, study_plan(), toy_state(trial))
    shown = values(tmp_path / "tensorboard" / "0")
    assert shown["net"] == net
    assert ("transform_bias" in shown) == biased
    assert "epochs" not in shown


@pytest.mark.parametrize(
    ("name", "score", "text"),
    [
        ("val_accuracy", 0.97654, "validation accuracy 97.65%"),
        ("val_loss", 0.123456, "validation loss 0.1235"),
        ("val_cross_entropy", 0.123456, "validation cross-entropy 0.1235"),
        ("val_mae", 0.0000123456, "validation mae 1.235e-05"),
    ],
)
def test_scores_are_written_as_in_training(name, score, text):
    objective = Objective(name, "max")
    assert f"{objective.label} {objective.text(score)}" == text

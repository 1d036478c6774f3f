"""The search against what is recorded of it, and its captions against the results, whatever a source says."""

import numpy as np
import pytest

import highway_keras
from pipelines.recipes.provenance import flat
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.trials import Trials, Tried
from pipelines.studies.papers import optimization
from pipelines.studies.papers.optimization import DEPTHS, STUDY, curves_caption, settings_caption
from tests.toy_data import changed_fields

NAMES = ("learning_rate", "momentum", "decay", "activation", "transform_bias")
DEAD = "dead gates: those of all 49 layers are shut before training"
NONE = "the loss is not finite any more"


def tried(arm, number, loss, reason=""):
    """A setting that ended at this loss, or failed for this reason."""
    values = {"learning_rate": 0.1, "momentum": 0.5, "decay": 0.9, "activation": "relu"}
    if arm.startswith("highway"):
        values["transform_bias"] = -2.5
    losses = np.array([2.3] if reason else [2.3, loss])
    return Tried(arm, f"{number:04}", values, losses, None if reason else 0.9, reason, 5.0, None)


def searched(losses, failed=()):
    """A search whose settings end at the losses of their net, and then fail for the reasons of their net."""
    pairs = [(arm, loss, "") for arm in STUDY.arms for loss in losses(*arm.split("-"))]
    pairs += [(arm, None, reason) for arm, reason in failed]
    return Trials([tried(arm, number, loss, reason) for number, (arm, loss, reason) in enumerate(pairs)], NAMES)


def as_the_source_says(kind, depth):
    return (5e-5, 3e-5, 2.0) if kind == "highway" or int(depth) < 50 else (2.302, 2.301, 2.303)


@pytest.fixture
def trials():
    return searched(as_the_source_says, [("highway-50", DEAD), ("plain-10", NONE), ("plain-10", NONE)])


@pytest.mark.parametrize("name", STUDY.arms)
def test_each_number_has_its_provenance_once(name):
    arm = STUDY.arms[name]
    tagged = [*arm.provenance.recorded, *arm.provenance.count_matched, *arm.provenance.assumed]
    values = flat(arm.config)
    assert len(tagged) == len(set(tagged))
    assert set(tagged) <= set(values)
    assert changed_fields(arm.config) <= set(tagged)


def test_the_arms_differ_in_their_nets_alone():
    # What one search over all of them rests on.
    assert len({arm.config.model_copy(update={"model": None}).model_dump_json() for arm in STUDY.arms.values()}) == 1
    assert list(STUDY.arms) == [f"{kind}-{depth}" for kind in ("highway", "plain") for depth in DEPTHS]
    assert (DEPTHS, STUDY.seeds, STUDY.search.transform_bias) == ((10, 20, 50, 100), 100, (-10.0, -1.0))


@pytest.mark.parametrize(("kind", "a_layer"), [("highway", 2 * 51 * 50), ("plain", 72 * 71)])
def test_a_layer_has_about_5000_parameters(kind, a_layer):
    nets = [STUDY.arms[f"{kind}-{depth}"].config.model for depth in DEPTHS[:2]]
    small, large = (highway_keras.from_preset(net.preset, depth=net.depth).count_params() for net in nets)
    assert large - small == 10 * a_layer
    assert a_layer == pytest.approx(5106, abs=7)


def test_settings_are_ranked_by_the_training_loss_in_the_last_epoch(trials):
    assert [one.loss for one in trials.ranked("highway-10")] == [3e-5, 5e-5, 2.0]
    assert [len(trials.of("plain-10")), len(trials.ranked("plain-10"))] == [5, 3]


def test_tables_put_the_source_beside_what_was_measured(trials):
    losses, fates, best = optimization.tabulated(trials)
    rows = {row[0]: row[1:] for row in losses.rows}
    assert rows["10"] == ("3e-05", "3e-05", "1", "0.667", "0.667", "1", "plain nets below 1e-4")
    assert rows["100"][:3] == ("3e-05", "2.3", "7.7e+04")
    assert rows["100"][-1].endswith("plain nets above 100 times their loss")
    assert {len(row) for row in losses.rows} == {len(losses.head)}
    rows = {row[0]: row[1:] for row in fates.rows}
    assert rows["plain-10"] == ("5", "3", "3", "2", f"2 x {NONE}")
    assert rows["highway-50"] == ("4", "3", "3", "1", f"1 x {DEAD}")
    assert rows["plain-100"] == ("3", "3", "0", "0", "-")
    rows = {row[0]: row[1:] for row in best.rows}
    assert rows["highway-10"] == ("0001", "0.1", "0.5", "0.9", "relu", "-2.5", "3e-05", "90.00%")
    assert rows["plain-10"][5] == "-"
    assert {len(row) for row in best.rows} == {len(best.head)}


def test_captions_say_what_the_source_says_where_the_results_do(trials):
    assert curves_caption(trials) == (
        "Chosen by the training loss in the last epoch; in brackets how many settings are in the mean. The best "
        "highway nets of 10, 20, 50 and 100 layers end at 3e-05, 3e-05, 3e-05 and 3e-05, plain nets of 10, 20, 50 and "
        "100 layers end at 3e-05, 3e-05, 2.3 and 2.3. Mean of the 10 best: highway nets of 10, 20, 50 and 100 layers "
        "end at 0.667, 0.667, 0.667 and 0.667, plain nets of 10, 20, 50 and 100 layers end at 0.667, 0.667, 2.3 and "
        "2.3. The loss of the best plain net over that of the best highway net: 1 at 10 layers, 1 at 20 layers, "
        "7.7e+04 at 50 layers and 7.7e+04 at 100 layers. No setting of plain-50 and plain-100 does better than "
        "guessing."
    )
    assert settings_caption(trials).endswith(
        "plain nets that end more than 0.02 below guessing: 3 of 5 with 10 layers, 3 of 3 with 20 layers, 0 of 3 with "
        "50 layers and 0 of 3 with 100 layers."
    )


def test_captions_say_the_reverse_where_the_results_do():
    other = {"highway": "plain", "plain": "highway"}
    reverse = searched(lambda kind, depth: as_the_source_says(other[kind], depth))
    assert "No setting of highway-50 and highway-100 does better than guessing." in curves_caption(reverse)
    assert "1.3e-05 at 100 layers" in curves_caption(reverse)


def test_nets_of_which_every_setting_failed_are_told_and_not_drawn(tmp_path):
    failed = [(arm, NONE) for arm in STUDY.arms if arm.startswith("plain")]
    trials = searched(lambda kind, _: (0.1,) if kind == "highway" else (), failed)
    assert curves_caption(trials).endswith("Every setting of plain-10, plain-20, plain-50 and plain-100 failed.")
    assert "over that of" not in curves_caption(trials)
    losses, fates, best = optimization.tabulated(trials)
    assert losses.rows[0][1:4] == ("0.1", "-", "-")
    assert fates.rows[-1] == ("plain-100", "1", "0", "0", "1", f"1 x {NONE}")
    assert set(best.rows[-1][1:]) == {"-"}
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(trials, figures)
    assert [picture.file for picture in figures.made] == ["training_curves.png", "every_setting.png"]


def test_a_search_of_which_everything_failed_is_told(tmp_path):
    trials = searched(lambda *_: (), [(arm, NONE) for arm in STUDY.arms])
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(trials, figures)
    assert [picture.file for picture in figures.made] == ["every_setting.png"]
    assert "highway nets that end more than 0.02 below guessing: 0 of 1 with 10 layers" in figures.made[0].caption
    assert len(optimization.tabulated(trials)) == 3


def test_all_figures_are_drawn_with_their_captions(trials, tmp_path):
    figures = Figures(tmp_path / "figures", "short schedule, budget 0.1: 46 of 100 settings of each net")
    STUDY.draw(trials, figures)
    files = ["training_curves.png", "every_setting.png"]
    assert [picture.file for picture in figures.made] == files
    assert all((tmp_path / "figures" / file).stat().st_size > 10_000 for file in files)
    assert all(picture.caption.endswith(".") for picture in figures.made)

"""The search against its published settings, its tables and its figures."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import highway_keras
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.trials import Trials, Tried
from pipelines.studies.papers import optimization
from pipelines.studies.papers.optimization import DEPTHS, STUDY

NAMES = ("learning_rate", "momentum", "decay", "activation", "transform_bias")
DEAD = "dead gates: those of all 49 layers are shut before training"
NONE = "the loss is not finite any more"


def tried(arm, number, loss, reason=""):
    """Returns a setting that ended at this loss, or failed for this reason."""
    values = {"learning_rate": 0.1, "momentum": 0.5, "decay": 0.9, "activation": "relu"}
    if arm.startswith("highway"):
        values["transform_bias"] = -2.5
    losses = np.array([2.3] if reason else [2.3, loss])
    return Tried(arm, f"{number:04}", values, losses, None if reason else 0.9, reason, 5.0, None)


def searched(losses, failed=()):
    """Returns a search with a setting for each loss of each net, and further ones that failed for these reasons."""
    pairs = [(arm, loss, "") for arm in STUDY.arms for loss in losses(*arm.split("-"))]
    pairs += [(arm, None, reason) for arm, reason in failed]
    return Trials([tried(arm, number, loss, reason) for number, (arm, loss, reason) in enumerate(pairs)], NAMES)


def as_the_source_says(kind, depth):
    return (5e-5, 3e-5, 2.0) if kind == "highway" or int(depth) < 50 else (2.302, 2.301, 2.303)


@pytest.fixture
def trials():
    return searched(as_the_source_says, [("highway-50", DEAD), ("plain-10", NONE), ("plain-10", NONE)])


def test_the_arms_differ_in_their_nets_alone():
    # One search over all of them relies on this.
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


def test_tables_have_the_source_next_to_the_measurements(trials):
    losses, fates, best = optimization.make_tables(trials)
    rows = {row[0]: row[1:] for row in losses.rows}
    assert rows["10"] == ("3e-05", "3e-05", "1", "0.667", "0.667", "1", "plain nets below 1e-4")
    assert rows["100"][:3] == ("3e-05", "2.3", "7.7e+04")
    assert rows["100"][-1].endswith("plain nets above 100 times their loss")
    assert {len(row) for row in losses.rows} == {len(losses.head)}
    rows = {row[0]: row[1:] for row in fates.rows}
    assert rows["plain-10"] == ("5", "3", "3", "2", f"{NONE} (2)")
    assert rows["highway-50"] == ("4", "3", "3", "1", f"{DEAD} (1)")
    assert rows["plain-100"] == ("3", "3", "0", "0", "-")
    rows = {row[0]: row[1:] for row in best.rows}
    assert rows["highway-10"] == ("0001", "0.1", "0.5", "0.9", "relu", "-2.5", "3e-05", "90.00%")
    assert rows["plain-10"][5] == "-"
    assert {len(row) for row in best.rows} == {len(best.head)}


def test_nets_whose_settings_all_failed_are_reported_and_not_drawn(tmp_path):
    failed = [(arm, NONE) for arm in STUDY.arms if arm.startswith("plain")]
    trials = searched(lambda kind, _: (0.1,) if kind == "highway" else (), failed)
    losses, fates, best = optimization.make_tables(trials)
    assert losses.rows[0][1:4] == ("0.1", "-", "-")
    assert fates.rows[-1] == ("plain-100", "1", "0", "0", "1", f"{NONE} (1)")
    assert set(best.rows[-1][1:]) == {"-"}
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(trials, figures)
    assert [figure.file for figure in figures.files] == ["training_curves.png", "every_setting.png"]


def test_a_search_in_which_everything_failed_is_reported(tmp_path):
    trials = searched(lambda *_: (), [(arm, NONE) for arm in STUDY.arms])
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(trials, figures)
    assert [figure.file for figure in figures.files] == ["every_setting.png"]
    assert [row[1:4] for row in optimization.make_tables(trials)[1].rows] == [("1", "0", "0")] * 8


def test_all_figures_are_drawn(trials, tmp_path):
    figures = Figures(tmp_path / "figures", "short schedule, budget 0.1: 46 of 100 settings of each net")
    STUDY.draw(trials, figures)
    files = ["training_curves.png", "every_setting.png"]
    assert [figure.file for figure in figures.files] == files
    assert all((tmp_path / "figures" / file).stat().st_size > 10_000 for file in files)


def test_the_ticks_of_one_epoch_are_plain_numbers():
    figure = Figure()
    losses = {arm: [np.array([2.2 + 0.02 * place])] for place, arm in enumerate(STUDY.arms)}
    optimization.draw_losses(figure, losses)
    figure.canvas.draw()
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert len(labels) > 2
    assert all(float(label) for label in labels)

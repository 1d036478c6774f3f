import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from pipelines.core.config import Space
from pipelines.tuning import figures
from pipelines.tuning.importance import FEWEST

from .plans import study_plan, toy_plan, toy_state, toy_trial
from .searches import hyperband_state, searched_state


def lines(plan, state):
    figure = Figure()
    figures.draw_parallel(figure, plan, state, "title")
    return figure.axes[0].collections[0]


def texts(plan, state):
    figure = Figure()
    figures.draw_parallel(figure, plan, state, "title")
    return [text.get_text() for text in figure.axes[0].texts], [
        text.get_text() for text in figure.axes[0].get_xticklabels()
    ]


@pytest.mark.parametrize("count", [1, 2, 40])
def test_figures_of_a_search(tmp_path, count):
    files = figures.draw(tmp_path, toy_plan(), searched_state(count, failed=range(30, 33)))
    assert [file.name for file in files] == ["parallel.png", "importance.png"][: 1 + (count >= FEWEST)]
    for file in files:
        assert np.asarray(Image.open(file)).std() > 5


def test_figures_of_a_search_over_several_nets(tmp_path):
    plan = study_plan(0.01)
    files = figures.draw(tmp_path, plan, searched_state(32, plan=plan))
    assert [file.name for file in files] == ["parallel.png", "importance.png"]


def test_equal_scores_have_the_same_colour():
    state = toy_state(*(toy_trial(number, score) for number, score in enumerate([0.9, 0.5, 0.9, 0.9, 0.1, 0.1])))
    drawn = lines(toy_plan(), state)
    assert len(np.unique(drawn.get_colors(), axis=0)) == 3
    assert (drawn.get_colors()[-3:] == drawn.get_colors()[-1]).all()
    assert len(np.unique(lines(toy_plan(), toy_state(toy_trial(0, 0.5), toy_trial(1, 0.5))).get_colors(), axis=0)) == 1


def test_a_setting_is_drawn_once_with_its_epochs():
    plan = toy_plan("hyperband", None, epochs=3)
    assert len(lines(plan, hyperband_state(9)).get_segments()) == 9
    labels, names = texts(plan, hyperband_state(9))
    assert names == ["learning rate", "activation", "transform bias", "epochs", "validation\naccuracy"]
    assert labels[labels.index("-1") + 1 :][:2] == ["1", "3"]


def test_the_line_of_a_plain_net_does_not_cross_the_axis_of_the_gates():
    plan = study_plan()
    common = {"momentum": 0.5, "decay": 0.9}
    plain, highway = toy_trial(0, 0.5, net="plain-10", **common), toy_trial(1, 0.6, net="highway-10", **common)
    first, second = (path.vertices for path in lines(plan, toy_state(plain, highway)).get_paths())
    assert np.isnan(first[:, 1]).sum() == 1
    assert first[np.isnan(first[:, 1]), 0] == 5
    assert not np.isnan(second).any()


def test_a_search_for_one_hyperparameter_has_no_importance(tmp_path):
    plan = toy_plan(space=Space(learning_rate=(0.001, 1.0)))
    assert [file.name for file in figures.draw(tmp_path, plan, searched_state(30))] == ["parallel.png"]

"""The map's captions and tables against the results, whatever a source says."""

from math import nan

import pytest

from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.papers import bias
from pipelines.studies.papers.bias import ALONE, BIASES, DEPTHS, STUDY, chart_caption, opened_caption, training_caption
from tests.unit.pipelines.studies.fake import result

ARMS = {ALONE: (1, None), **{bias.arm(depth, value): (depth, value) for depth in DEPTHS for value in BIASES}}


def score(depth, value):
    """Low biases make a shallow net, high ones fail, and the deeper the net the more of them."""
    if value is None or value <= -10:
        return 0.92
    return 0.11 if value > 2 or (value >= 0 and depth > 30) else 0.96


def made(path, accuracy, seeds=2):
    return Results(
        result(
            name,
            arm.config,
            seed,
            accuracy(*ARMS[name]),
            path,
            losses=(2.3, 1 - (accuracy(*ARMS[name]) or 0)),
            gates=None if ARMS[name][1] is None else [[0.1, 0.3], [0.2, 0.4], [0.4, 0.6]],
        )
        for name, arm in STUDY.arms.items()
        for seed in range(seeds)
    )


def test_the_arms_are_the_map_and_the_layer_alone():
    assert list(STUDY.arms) == list(ARMS)
    assert {name: (arm.config.model.depth, arm.config.model.transform_bias) for name, arm in STUDY.arms.items()} == ARMS
    assert {arm.config.model.activation for arm in STUDY.arms.values()} == {"relu"}


def test_the_caption_tells_which_biases_learn_at_which_depth(tmp_path):
    said = chart_caption(made(tmp_path, score))
    assert "At 10 layers biases of -20, -10, -6, -4, -2, 0 and 2 reach 92.0% to 96.0%, the most at -6; those of" in said
    assert "At 300 layers biases of -20, -10, -6, -4 and -2 reach 92.0% to 96.0%, the most at -6; those of 0, 2" in said
    assert "those of 0, 2 and 10 guess" in said
    assert said.endswith(
        "With the lowest bias, -20, nets of 10, 30, 100 and 300 layers end at 92.0%; the plain layer without any block "
        "ends at 92.0%."
    )


def test_the_caption_tells_the_reverse_where_it_is_so(tmp_path):
    said = chart_caption(made(tmp_path, lambda depth, value: 0.97 if value == 10 else None if value == 2 else 0.1))
    assert "At 10 layers biases of 10 reach 97.0%, the most at 10; those of -20, -10, -6, -4, -2 and 0 guess" in said
    assert "those of 2 diverge." in said


def test_one_run_that_learns_is_not_passed_over(tmp_path):
    results = list(made(tmp_path, lambda *_: 0.1).all)
    name = bias.arm(300, 10.0)
    results[next(i for i, one in enumerate(results) if one.arm == name)] = result(
        name, STUDY.arms[name].config, 0, 0.5, tmp_path
    )
    assert "At 300 layers biases of 10 reach 30.0%" in chart_caption(Results(results))


def test_the_map_tells_nets_that_diverged_from_those_that_were_not_run(tmp_path):
    lost, left, whole = (bias.arm(10, value) for value in BIASES[:3])
    known = made(tmp_path, lambda _, value: None if value == BIASES[0] else 0.96)
    results = Results(one for one in known.all if one.arm != left)
    written = [bias.written(results, name, value, ".1%") for name, value in ((lost, nan), (left, nan), (whole, 0.96))]
    assert written == ["diverged", "-", "96.0"]


def test_other_captions(tmp_path):
    results = made(tmp_path, score)
    assert "10 layers from 0.040 at a bias of -6 to 0.890 at one of 10; 30 layers from" in training_caption(results)
    assert "10 layers from 0.2 to 0.5 at a bias of -20 and from 0.2 to 0.5 at one of 10" in opened_caption(results)


def test_tables_have_every_net(tmp_path):
    accuracy, loss = bias.tabulated(made(tmp_path, score))
    assert accuracy.head == ("layers", *(f"bias {value:g}" for value in BIASES))
    assert accuracy.rows[0][1] == "92.00 (92.00 +- 0.00, n = 2)"
    assert accuracy.rows[-1] == ("1, no gates", "92.00 (92.00 +- 0.00, n = 2)", *("-",) * 7)
    assert [row[-1] for row in loss.rows] == ["0.890"] * 4 + ["-"]


@pytest.mark.parametrize("most", [-20, 10])
def test_all_figures_are_drawn_of_what_did_not_diverge(tmp_path, most):
    def accuracy(depth, value):
        return None if value is not None and value > most else score(depth, value)

    figures = Figures(tmp_path / "figures", "short schedule")
    STUDY.draw(made(tmp_path, accuracy), figures)
    assert [picture.file for picture in figures.made] == ["bias_map.png", "training.png", "gates.png"]
    assert all(picture.caption.endswith(".") for picture in figures.made)


def test_of_nets_that_all_diverged_the_tables_tell(tmp_path):
    results = made(tmp_path, lambda *_: None)
    assert bias.tabulated(results)[0].rows[0][1] == "diverged (n = 2)"
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(results, figures)
    assert figures.made == []

"""The study's numbers against the recorded ones, its tables and its figures."""

import math

import pytest
from PIL import Image

from pipelines import studies
from pipelines.core.frozen import flat
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.papers import depth_contrast
from pipelines.studies.papers.depth_contrast import BLOCKS, STUDY
from tests.unit.pipelines.studies.fake import depth_results

RECORDED = {
    "data": "mnist",
    "subset.train": 6000,
    "subset.test": 2000,
    "subset.seed": 0,
    "preprocess.scale": 2 / 255,
    "preprocess.offset": -1.0,
    "optimizer.name": "adam",
    "optimizer.learning_rate": 0.005,
    "optimizer.epsilon": 1e-8,
    "optimizer.clip_norm": 5.0,
    "batch_size": 128,
    "epochs": 12,
    "schedule.kind": "constant",
    "model.initializer": "fan_in_uniform",
}


def as_the_source_says(kind, blocks):
    return 0.9 if kind == "highway" else {5: 0.857, 10: 0.292}.get(blocks, 0.11)


def loss_of_the_source(kind, blocks):
    return 0.19 if kind == "highway" else {5: 0.478, 10: 1.773}.get(blocks, 2.302)


@pytest.fixture
def results(tmp_path):
    return depth_results(STUDY, tmp_path, as_the_source_says, loss_of_the_source)


def test_the_recorded_numbers():
    for arm in STUDY.arms.values():
        values = flat(arm.config)
        assert {field: values[field] for field in RECORDED} == RECORDED


@pytest.mark.parametrize("blocks", BLOCKS)
def test_the_nets_have_one_projection_and_that_many_blocks(blocks):
    import highway_keras

    def parameters(kind):
        model = STUDY.arms[f"{kind}-{blocks}"].config.model
        settings = model.model_dump(exclude={"preset"}, exclude_none=True)
        return highway_keras.from_preset(model.preset, **settings).count_params()

    ends = 785 * 50 + 51 * 10
    assert parameters("highway") == ends + blocks * 2 * 51 * 50
    assert parameters("plain") == ends + blocks * 51 * 50


def test_a_study_is_found_by_its_name():
    assert studies.get("depth-contrast") is STUDY
    assert [study.name for study in map(studies.get, studies.names())] == list(studies.names())


def test_tables_have_the_source_next_to_the_measurements(results):
    accuracy, runs, loss = depth_contrast.make_tables(results)
    assert accuracy.head == ("blocks", "highway", "highway, source", "plain", "plain, source")
    rows = {row[0]: row[1:] for row in accuracy.rows}
    assert rows["30"] == (
        "90.00 (90.00 ± 0.00, n = 2)", "92.60 (90.77 ± 1.68, n = 3)",
        "11.00 (11.00 ± 0.00, n = 2)", "12.40 (11.80 ± 0.66, n = 3)",
    )  # fmt: skip
    assert rows["100"][1::2] == ("-", "-")
    assert {row[0]: row[1:] for row in loss.rows}["10"] == ("0.190", "0.187", "1.773", "1.773")
    rows = {row[:2]: row[2:] for row in runs.rows}
    assert runs.head == ("blocks", "images of seed", *accuracy.head[1:])
    assert list(rows) == [
        ("5", "0"), ("10", "0"), ("20", "0"), ("30", "0"), ("30", "1"), ("30", "2"), ("50", "0"),
        ("mean", ""),
    ]  # fmt: skip
    assert rows["30", "1"] == ("90.00 (n = 1)", "90.40", "11.00 (n = 1)", "11.90")
    # Two seeds were run.
    assert rows["30", "2"] == ("-", "89.30", "-", "11.10")


def test_seeds_take_the_draws_of_the_source_in_turn():
    configs = [STUDY.arms["plain-5"].config.seeded(seed, STUDY.draws) for seed in range(5)]
    assert [config.subset.seed for config in configs] == [0, 1, 2, 0, 1]
    assert [config.seed for config in configs] == [0, 1, 2, 3, 4]


def test_all_figures_are_drawn(results, tmp_path):
    figures = Figures(tmp_path / "figures", "short schedule, budget 0.1: 1 of 3 seeds")
    STUDY.draw(results, figures)
    files = {figure.file for figure in figures.files}
    assert files == {
        "depth_sweep.png", "loss_collapse.png", "learning_curves.png", "gate_evolution.png", "final_gates.png",
        "training.gif",
    }  # fmt: skip
    assert {path.name for path in (tmp_path / "figures").iterdir()} == files
    with Image.open(tmp_path / "figures" / "training.gif") as moving:
        assert moving.n_frames == 3
    assert (tmp_path / "figures" / "training.gif").stat().st_size < 500_000


def test_nets_that_diverged_are_reported_and_not_drawn(tmp_path):
    def accuracy(kind, blocks):
        return None if kind == "plain" else 0.9

    diverged = depth_results(STUDY, tmp_path, accuracy, loss_of_the_source)
    accuracies, _, losses = depth_contrast.make_tables(diverged)
    assert [table.rows[0][3] for table in (accuracies, losses)] == ["diverged (n = 2)"] * 2
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(diverged, figures)
    assert [figure.file for figure in figures.files] == ["depth_sweep.png", "loss_collapse.png"]


def test_means_are_over_the_runs_that_did_not_diverge(tmp_path):
    results = depth_results(STUDY, tmp_path, as_the_source_says, loss_of_the_source, seeds=3)
    some = [one for one in results.all if one.seed != 1]
    diverged = depth_results(STUDY, tmp_path, lambda *_: None, lambda *_: math.nan, seeds=2)
    lost = [one for one in diverged.all if one.seed == 1]
    mixed = Results([*some, *lost])
    assert mixed.curves("plain-10", "loss").shape == (2, 2)
    assert mixed.gates("highway-5").shape == (2, 3, 5)
    assert len(mixed.of("plain-10")) == 3
    _, means, losses = depth_contrast.make_tables(mixed)
    assert losses.rows[0][1] == "0.190 (n = 2, 1 more diverged)"
    assert means.rows[0][2] == "90.00 (n = 1)"

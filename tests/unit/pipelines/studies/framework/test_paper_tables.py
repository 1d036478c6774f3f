"""The studies of the paper's tables: the published numbers, and the sentences about results."""

import pytest
from PIL import Image

from pipelines import recipes, studies
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.tables import SPREAD
from pipelines.studies.papers import cifar10, cifar100, fitnets, mnist
from pipelines.training import metrics_file
from tests.unit.pipelines.studies.fake import result

NAMES = ("mnist", "cifar10", "cifar100", "fitnets")
SHORT = [study for name in NAMES if (study := studies.get(name).short)]
ALL = [*map(studies.get, NAMES), *SHORT]
LABEL = "short schedule: 10 epochs in place of the recorded training"


def name_of(study):
    return f"{study.name} {'short' if study.label else 'full'}"


def made(study, path, accuracy, way=(), seeds=2):
    """Returns results whose runs end at `accuracy(arm, seed)`, None if they diverge, after the accuracies in `way`."""
    runs = []
    for name, arm in study.arms.items():
        for seed in range(seeds):
            end = accuracy(name, seed)
            runs.append(result(name, arm.config, seed, end, path))
            runs[-1].run.path.mkdir(parents=True)
            for step, share in {**dict(way), 180_000: end}.items():
                if end is not None:
                    row = {"step": step, "test_accuracy": share, "test_loss": 0.1}
                    metrics_file.append(runs[-1].run.path / "watched.csv", row)
    return Results(runs)


def test_the_numbers_that_the_paper_prints():
    nets = (*mnist.NETS, *fitnets.HIGHWAYS, *fitnets.CITED)
    assert [(net.name, net.published.best, net.parameters) for net in nets] == [
        ("Highway, width 16", 0.9943, 39_000),
        ("Highway, width 32", 0.9955, 151_000),
        ("Maxout", 0.9955, 420_000),
        ("DSN", 0.9961, 350_000),
        ("Highway A, 11 layers", 0.8918, 236_000),
        ("Highway B, 19 layers", 0.9246, 2_300_000),
        ("Highway C, 32 layers", 0.9120, 1_250_000),
        ("FitNet A, 11 layers", 0.8901, 250_000),
        ("FitNet B, 19 layers", 0.9161, 2_500_000),
        ("the teacher, 5 layers", 0.9018, 9_000_000),
    ]
    both = zip(cifar10.CITED, cifar100.CITED, strict=True)
    assert [(ten.name, hundred.name, ten.published.best, hundred.published.best) for ten, hundred in both] == [
        ("Maxout", "Maxout", 0.9062, 0.6142),
        ("dasNet", "dasNet", 0.9078, 0.6622),
        ("NiN", "NiN", 0.9119, 0.6432),
        ("DSN", "DSN", 0.9203, 0.6543),
        ("All-CNN", "All-CNN", 0.9275, 0.6629),
    ]


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("mnist", ["mnist_conv_16", "mnist_conv_32"]),
        ("cifar10", ["cifar10_19"]),
        ("cifar100", ["cifar100_19"]),
        ("fitnets", ["fitnet_a", "fitnet_b", "fitnet_c"]),
    ],
)
def test_in_full_the_recipes_are_trained(name, trained):
    study = studies.get(name)
    assert [arm.config for arm in study.arms.values()] == [recipes.get(recipe).config for recipe in trained]
    assert study.label == ""


@pytest.mark.parametrize("study", SHORT, ids=name_of)
def test_short_results_are_labelled_and_not_compared_to_the_paper(study, tmp_path):
    assert study.label == LABEL
    assert "all of its numbers are ours" in study.differs[0]
    shown = study.tables(made(study, tmp_path, lambda *_: 0.8))[0]
    measured = [row for row in shown.rows if row[4] != "-"]
    assert len(measured) == len(study.arms)
    assert {row[5] for row in measured} == {"-"}
    assert any(row[5] != "-" for row in shown.rows if row[0].startswith("Highway"))


def test_the_table_has_the_paper_next_to_the_measurements(tmp_path):
    study = studies.get("mnist")
    results = made(study, tmp_path, lambda arm, seed: 0.99 + 0.002 * seed if arm == "width-16" else None)
    assert study.tables(results)[0].rows == (
        ("Highway, width 16", "100", "39,000", "300", "99.20 (99.10 ± 0.14, n = 2)", "99.43 (99.40 ± 0.03)"),
        ("Highway, width 32", "100", "151,000", "300", "diverged (n = 2)", "99.55 (99.54 ± 0.02)"),
        ("Maxout", "-", "420,000", "-", "-", "99.55"),
        ("DSN", "-", "350,000", "-", "-", "99.61"),
    )


def test_the_waypoints_are_next_to_the_log_step_by_step(tmp_path):
    study = studies.get("mnist")
    results = made(study, tmp_path, lambda arm, _: 0.992 if arm == "width-32" else None, {600: 0.95, 1200: 0.97})
    waypoints = study.tables(results)[1]
    assert waypoints.head == ("steps", "Highway, width 16", "Highway, width 32", "the authors' log, width 32")
    assert waypoints.rows == (
        ("600", "diverged (n = 2)", "95.00 (95.00 ± 0.00, n = 2)", "95.88"),
        ("6,000", "diverged (n = 2)", "-", "98.75"),
        ("60,000", "diverged (n = 2)", "-", "99.31"),
        ("180,000", "diverged (n = 2)", "99.20 (99.20 ± 0.00, n = 2)", "99.54"),
    )


def test_waypoints_count_the_runs_that_diverged(tmp_path):
    study = studies.get("mnist")
    results = made(study, tmp_path, lambda _, seed: None if seed else 0.992, {600: 0.95})
    assert study.tables(results)[1].rows[0][1:3] == ("95.00 (n = 1, 1 more diverged)",) * 2


def test_notes_explain_a_spread_of_ours_only_if_there_is_one(tmp_path):
    study = studies.get("mnist")
    several = study.tables(made(study, tmp_path / "two", lambda *_: 0.9, {600: 0.8}))
    single = study.tables(made(study, tmp_path / "one", lambda *_: 0.9, {600: 0.8}, seeds=1))
    papers = " The paper's: best (mean ± standard deviation over 5 runs); its parameter counts are rounded"
    theirs = "; the log is one run of theirs"
    assert [table.note for table in several] == [f"ours: {SPREAD}.{papers}", f"{SPREAD}{theirs}"]
    assert [table.note for table in single] == [f"ours: one run each (n = 1).{papers}", f"one run each (n = 1){theirs}"]


def test_omitted_nets_are_not_reported_as_diverged(tmp_path):
    study = studies.get("mnist")
    both = made(study, tmp_path, lambda *_: 0.9)
    results = Results(both.of("width-16"))
    figures = Figures(tmp_path / "figures", "")
    study.draw(results, figures)
    accuracies, waypoints = study.tables(results)
    assert accuracies.rows[1] == ("Highway, width 32", "-", "151,000", "-", "-", "99.55 (99.54 ± 0.02)")
    assert {row[2] for row in waypoints.rows} == {"-"}


# 1.0 has no error to draw on a logarithmic axis; None diverged.
@pytest.mark.parametrize(("study", "accuracy"), [*((study, 0.8) for study in ALL), (ALL[0], 1.0), (ALL[0], None)])
def test_every_figure_is_drawn(study, accuracy, tmp_path):
    figures = Figures(tmp_path / "figures", study.label)
    study.draw(made(study, tmp_path, lambda *_: accuracy, {500: 0.7}), figures)
    assert [figure.file for figure in figures.files] == ["accuracies.png", "waypoints.png"]
    for figure in figures.files:
        with Image.open(tmp_path / "figures" / figure.file) as image:
            assert min(image.size) > 200

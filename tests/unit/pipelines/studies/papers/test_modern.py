"""The nets of today next to the paper's, and the effect of each piece of their training."""

from dataclasses import replace

import pytest

from pipelines import recipes
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.papers.modern import COMPARED_ON, NETS, PIECES, STUDY
from tests.unit.pipelines.studies.fake import result


def made(study, path, accuracy, arms=None):
    """Returns results of two seeds, with `accuracy(arm)` on held-out images too."""
    runs = [
        result(name, arm.config, seed, accuracy(name), path)
        for name, arm in study.arms.items()
        if arms is None or name in arms
        for seed in range(2)
    ]
    return Results(
        replace(run, rows=tuple({**row, "val_accuracy": (accuracy(run.arm) or 0.1) - 0.01} for row in run.rows))
        for run in runs
    )


def test_every_net_is_next_to_the_papers(tmp_path):
    (table,) = STUDY.tables(
        made(STUDY, tmp_path, lambda arm: None if arm == "mnist" else 0.9, NETS.keys() - {"cifar100"})
    )
    assert table.rows == (
        ("MNIST", "100", "diverged (n = 2)", "the paper's width 32", "99.55 (99.54 ± 0.02)"),
        ("CIFAR-10", "100", "90.00 (90.00 ± 0.00, n = 2)", "the paper's 19 layers", "92.40 (92.31 ± 0.12)"),
        ("CIFAR-100", "-", "-", "the paper's 19 layers", "67.76 (67.61 ± 0.15)"),
    )


def test_the_recipes_train_without_some_held_out_images():
    for arm, net in NETS.items():
        config = recipes.get(net.recipe).config
        assert STUDY.arms[arm].config == config.model_copy(update={"validation": 1000})
        assert STUDY.arms[arm].counts.train == net.counts.train - 1000


def test_each_piece_is_one_change_of_the_same_training():
    whole = PIECES["whole"][1]
    configs = [config for _, config in PIECES.values()]
    assert len({config.model_dump_json() for config in configs}) == len(PIECES)
    same = {"seed", "batch_size", "preprocess", "data", "recipe"}
    for config in configs:
        assert config.model_dump(include=same) == whole.model_dump(include=same)
        assert (config.epochs, config.validation) == (20, COMPARED_ON)
        # Values were copied without validation.
        assert type(config).model_validate(config.model_dump()) == config


def test_pieces_are_compared_on_held_out_images(tmp_path):
    accuracies = {"muon": None, "no-cutout": 0.88, "whitened": 0.905}
    results = made(STUDY.short, tmp_path, lambda arm: accuracies.get(arm, 0.9), PIECES.keys() - {"adamw"})
    (table,) = STUDY.short.tables(results)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["nothing"] == ("90.00 (90.00 ± 0.00, n = 2)", "89.00 (89.00 ± 0.00, n = 2)", "-")
    assert rows["no cutout"] == ("88.00 (88.00 ± 0.00, n = 2)", "87.00 (87.00 ± 0.00, n = 2)", "-2.00")
    assert rows["Muon in place of SGD"] == (*("diverged (n = 2)",) * 2, "-")
    assert rows["AdamW in place of SGD"] == ("-", "-", "-")
    assert rows["whitened first convolution"][2] == "+0.50"
    # The accuracy in training is not that of the final net on the images themselves.
    assert "training: mean over the last epoch, " in table.note
    assert "held out: 5,000 images, after the last epoch" in table.note


@pytest.mark.parametrize("study", [STUDY, STUDY.short], ids=["full", "short"])
def test_every_figure_is_drawn(study, tmp_path):
    figures = Figures(tmp_path, study.label)
    study.draw(made(study, tmp_path, lambda _: 0.9), figures)
    assert [(tmp_path / figure.file).stat().st_size > 5000 for figure in figures.files] == [True]

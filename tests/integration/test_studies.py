"""Every study at a tiny budget, its runs in one process: tables, figures and page."""

import gc
import io
import sys

import keras
import pytest
import tensorflow as tf
from rich.console import Console

from pipelines import studies
from pipelines.studies.papers import bias, lesions, nets, thousand
from pipelines.studies.papers.memory_traffic import step
from pipelines.studies.papers.memory_traffic import study as memory_traffic
from pipelines.studies.run import reproduce, task, training
from tests.studied import BUDGET, assert_complete, prepare

# tf.data compiles its functions all the same, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:Even though the .* option is set:UserWarning")
# One after the other in a folder, as some reuse the nets that others trained.
GROUPS = (("gates", "routing", "lesions"),)
# Some arms stand for others that are like them; those of the gradients are what its figures need.
SOME = {
    "bias": (bias.ALONE, bias.arm(10, -20.0), bias.arm(30, 10.0)),
    "thousand": (thousand.arm(thousand.SHOWN),),
    "gradients": ("highway-10", "highway-30", "residual-30", "plain-30"),
    "data-movement": ("small-highway", "small-plain", "large-residual-wide"),
    "depth-twins": tuple(nets.name(net, 10) for net in nets.NETS),
    "depth-hundred": tuple(nets.name(net, 100) for net in ("highway-low", "residual-wide", "plain")),
}
# If a study has shallower nets, deeper ones are left out.
DEEPEST = 31
# A study with further measurements; probes are tested with training.
FAST = ("depth-routes",)
# A short schedule is one line of each study; one stands for all.
ALONE = [
    pytest.param(name, schedule, marks=() if name in FAST else pytest.mark.slow)
    for name in studies.names()
    # test_reproduce.py runs these in processes.
    if not studies.get(name).search and name != "depth-contrast" and not any(name in group for group in GROUPS)
    for schedule in (("full", "short") if name == "cifar10" else ("full",))
]


def in_full_or_short(name, schedule):
    return studies.get(name).short if schedule == "short" else studies.get(name)


def some_arms(name, schedule):
    """The arms of a study that are run here."""
    arms = in_full_or_short(name, schedule).arms
    shallow = tuple(name for name, arm in arms.items() if (arm.config.model.depth or 0) <= DEEPEST)
    return SOME.get(name) or shallow or tuple(arms)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("data_sets"))


@pytest.fixture
def run(monkeypatch, toy):
    """A function that runs a study to its end, its runs in this process; returns what it prints.

    TensorFlow runs eagerly unless lesions are measured, steps are timed briefly, and the figures of single runs are
    left out: compiling and drawing are tested elsewhere, and would take most of the time and memory here.
    """
    for name in ("draw_training", "draw_confusion", "draw_forecast"):
        monkeypatch.setattr(f"pipelines.training.figures.{name}", lambda *_: None)

    monkeypatch.setattr(memory_traffic, "ROUNDS", 2)
    monkeypatch.setattr(memory_traffic, "SECONDS", 0.01)
    monkeypatch.setattr(step, "COPIED", 1_000_000)
    monkeypatch.setattr(lesions, "OF_UNITS", 20)

    def train_all(members, **_):
        for member in members:
            task.act(member.task)
            assert member.task.done
            keras.utils.clear_session()
            gc.collect()

    monkeypatch.setattr(training, "train_all", train_all)

    def to_its_end(name, schedule, folder, arms):
        words = ["reproduce", name, "--budget", BUDGET, "--schedule", schedule, "--to", str(folder)]
        monkeypatch.setattr(sys, "argv", ["highway", *words])
        output = io.StringIO()
        # Lesions of units run one program thousands of times, which is worth compiling.
        tf.config.run_functions_eagerly(name not in GROUPS[0])
        reproduce.reproduce(
            name, folder, budget=float(BUDGET), schedule=schedule, arms=arms, data_dir=toy, console=Console(file=output)
        )
        return output.getvalue()

    yield to_its_end
    tf.config.run_functions_eagerly(False)


@pytest.mark.parametrize(("name", "schedule"), ALONE)
def test_a_study(run, tmp_path, name, schedule):
    study, arms, folder = in_full_or_short(name, schedule), some_arms(name, schedule), tmp_path / name
    run(name, schedule, folder, arms)
    assert_complete(folder, study, arms)
    for arm in {arms[0], arms[-1]}:
        # Tables and figures of one arm, without further training: all others are missing.
        run(name, schedule, folder, (arm,))
        page = (folder / "README.md").read_text()
        assert ("**Not run: " in page) == (len(study.arms) > 1)
        assert "diverge" not in page.partition("## How it was made")[0]


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_studies_of_the_same_nets_train_them_once(run, tmp_path, group):
    first, *others = (run(name, "full", tmp_path / name, some_arms(name, "full")) for name in group)
    for name in group:
        assert_complete(tmp_path / name, studies.get(name))
    assert "trained already" not in first
    for output in others:
        assert output.count("trained already") == len(studies.get(group[0]).arms)


def test_further_seeds_take_the_draws_of_a_source_again(monkeypatch, toy, tmp_path):
    class EnoughError(Exception):
        pass

    found = []

    def train_all(members, **_):
        found.extend((member.task.config.seed, member.task.config.subset.seed) for member in members)
        raise EnoughError

    monkeypatch.setattr(training, "train_all", train_all)
    with pytest.raises(EnoughError):
        reproduce.reproduce(
            "depth-contrast", tmp_path / "study", seeds=4, arms=("highway-5",), data_dir=toy,
            console=Console(file=io.StringIO()),
        )  # fmt: skip
    assert found == [(0, 0), (1, 1), (2, 2), (3, 0)]

"""Every study at a tiny budget, its runs in one process: tables, figures and page."""

import io
import sys

import keras
import pytest
import tensorflow as tf
from rich.console import Console

from pipelines import studies
from pipelines.studies.papers import bias, lesions, thousand
from pipelines.studies.papers.factors import forecasts, walk_forward
from pipelines.studies.papers.memory_traffic import step
from pipelines.studies.papers.memory_traffic import study as memory_traffic
from pipelines.studies.run import reproduce, task, training
from pipelines.studies.shared import nets
from tests.finished_study import BUDGET, assert_complete, prepare

# tf.data compiles its functions anyway, and warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:Even though the .* option is set:UserWarning")
# These run one after the other in the same folder, because some reuse the nets of others.
GROUPS = (("gates", "routing", "lesions"),)
# Arms that represent similar ones: a dense and a convolutional net for section 4, the arms that the figures of the
# gradients need, and one task and net of the factor model in all decades, which its tables need.
# tests/unit/pipelines/studies/papers/factors covers all arms of the latter.
REPRESENTATIVES = {
    **dict.fromkeys(GROUPS[0], ("cifar100", "mnist-conv")),
    "factors": tuple(name for name in studies.get("factors").arms if name.startswith("size-highway-")),
    "bias": (bias.ALONE, bias.arm(10, -20.0), bias.arm(30, 10.0)),
    "thousand": (thousand.arm(thousand.SHOWN),),
    "gradients": ("highway-10", "highway-30", "residual-30", "plain-30"),
    "data-movement": ("small-highway", "large-residual-wide"),
    "depth-twins": tuple(nets.name(net, 10) for net in nets.NETS),
    "depth-hundred": tuple(nets.name(net, 100) for net in ("highway-low", "plain")),
    "mnist": ("width-16",),
    "modern": ("mnist",),
    "conv-gate": ("plain",),
    "fitnets": ("highway-a",),
}
# Studies worth compiling: lesions of units run one program thousands of times, and a loop of a thousand layers is
# traced once.
COMPILED = (*GROUPS[0], "thousand")
# Deeper nets are left out of studies that have shallower ones.
DEEPEST = 31
# The study that measures more than probes do; probes are tested with training.
FAST = ("depth-routes",)
# A short schedule is one line in each study, so testing one of them is enough.
SHORT = ("cifar100",)
SINGLE_STUDIES = [
    pytest.param(name, "short" if name in SHORT else "full", marks=() if name in FAST else pytest.mark.slow)
    for name in studies.names()
    # test_reproduce.py runs these in processes.
    if not studies.get(name).search and name != "depth-contrast" and not any(name in group for group in GROUPS)
]


def definition(name, schedule):
    return studies.get(name).short if schedule == "short" else studies.get(name)


def representative_arms(name, schedule):
    """Returns the arms of a study that are run here."""
    arms = definition(name, schedule).arms
    shallow = tuple(name for name, arm in arms.items() if (arm.config.model.depth or 0) <= DEEPEST)
    return REPRESENTATIVES.get(name) or shallow or tuple(arms)


@pytest.fixture(scope="module")
def toy(shared):
    return shared("studied", prepare)


@pytest.fixture
def run(monkeypatch, toy):
    """A function that runs a study in this process, with all of its runs, and returns its output.

    TensorFlow runs eagerly unless compiling pays, steps are timed briefly, intervals come from few resamples, and
    the figures of single runs are left out: compiling and drawing are tested elsewhere, and would take most of the time
    and memory here.
    """
    for name in ("draw_training", "draw_confusion", "draw_forecast"):
        monkeypatch.setattr(f"pipelines.training.figures.{name}", lambda *_: None)
    monkeypatch.setattr("pipelines.data.figures.draw_predictions", lambda *_, **__: None)

    monkeypatch.setattr(memory_traffic, "ROUNDS", 2)
    monkeypatch.setattr(memory_traffic, "SECONDS", 0.01)
    monkeypatch.setattr(step, "COPIED", 1_000_000)
    monkeypatch.setattr(lesions, "OF_UNITS", 20)
    factors = studies.get("factors").arms
    for name in REPRESENTATIVES["factors"]:
        # A quarter of the steps.
        config = factors[name].config.model_copy(update={"batch_size": 100})
        monkeypatch.setitem(factors, name, factors[name].model_copy(update={"config": config}))
    monkeypatch.setitem(walk_forward.KINDS, "size", ("highway",))
    monkeypatch.setattr(forecasts, "REPEATS", 20)
    monkeypatch.setattr(forecasts, "PENALTIES", (1.0, 100.0))
    monkeypatch.setattr(forecasts, "FOLDS", 2)

    def train_all(members, **_):
        for member in members:
            task.act(member.task)
            assert member.task.done
        keras.utils.clear_session()

    monkeypatch.setattr(training, "train_all", train_all)

    def run_study(name, schedule, folder, arms):
        words = ["reproduce", name, "--budget", BUDGET, "--schedule", schedule, "--to", str(folder)]
        monkeypatch.setattr(sys, "argv", ["highway", *words])
        output = io.StringIO()
        tf.config.run_functions_eagerly(name not in COMPILED)
        reproduce.reproduce(
            name, folder, budget=float(BUDGET), schedule=schedule, arms=arms, data_dir=toy, console=Console(file=output)
        )
        return output.getvalue()

    yield run_study
    tf.config.run_functions_eagerly(False)


@pytest.mark.parametrize(("name", "schedule"), SINGLE_STUDIES)
def test_a_study_writes_its_tables_figures_and_page(run, tmp_path, name, schedule):
    study, arms, folder = definition(name, schedule), representative_arms(name, schedule), tmp_path / name
    run(name, schedule, folder, arms)
    assert_complete(folder, study, arms)
    assert_says_what_was_run(folder, study, arms)
    for arm in {arms[0], arms[-1]} if len(arms) > 1 else ():
        # Tables and figures of one arm, without further training, as if the others had not been run.
        run(name, schedule, folder, (arm,))
        assert_says_what_was_run(folder, study, (arm,))


def assert_says_what_was_run(folder, study, arms):
    page = (folder / "README.md").read_text()
    assert ("**Not run: " in page) == (len(study.arms) > len(arms))
    assert "diverge" not in page.partition("## How it was made")[0]


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_studies_of_the_same_nets_train_them_once(run, tmp_path, group):
    arms = representative_arms(group[0], "full")
    first, *others = (run(name, "full", tmp_path / name, arms) for name in group)
    for name in group:
        assert_complete(tmp_path / name, studies.get(name), arms)
    assert "trained already" not in first
    for output in others:
        assert output.count("trained already") == len(arms)


def test_further_seeds_repeat_the_draws_of_the_source(monkeypatch, toy, tmp_path):
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

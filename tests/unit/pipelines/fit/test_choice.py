"""The choice of size and epochs by the time that is left; the speed of the machine is made up."""

import io
import time

import pytest
from rich.console import Console

from pipelines import recipes
from pipelines.data.own.prepare import read
from pipelines.data.own.table_data import read_table
from pipelines.fit import choice
from tests import houses, shapes

# Made-up seconds of a step by the size of the input. At 48 pixels they are more than the pixels suggest.
SECONDS = {32: 1.2, 48: 6.0, 64: 7.2}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def images(home, monkeypatch):
    """Images of five training steps per epoch, all larger than 64 pixels."""
    monkeypatch.setattr(choice.np, "median", lambda _: 70.0)
    return read(str(shapes.write(home / "shapes", 40)), None, Console(file=io.StringIO()))


@pytest.fixture
def measured(monkeypatch):
    """The sizes that are measured."""
    sizes = []

    def seconds(_, info):
        sizes.append(info.shape[0])
        return SECONDS[info.shape[0]]

    monkeypatch.setattr(choice, "seconds_per_step", seconds)
    return sizes


@pytest.mark.parametrize(
    ("seconds", "tried", "epochs"),
    [
        # 64 pixels need 8 epochs of 36 s in three quarters of the time.
        (420, [32, 64], 8),
        (7200, [32, 64], 60),
        # Both look affordable by their pixels, until they are measured.
        (310, [32, 64, 48], 38),
        # Both are too slow by their pixels alone.
        (60, [32], 7),
        # The time is over, but a net needs a few epochs.
        (0, [32], 3),
    ],
)
def test_size_and_epochs_fit_into_the_time(images, measured, seconds, tried, epochs):
    start = recipes.get("cifar10_modern").config
    found = choice.choose(images, start, time.monotonic() + seconds).config
    size = 64 if epochs in {8, 60} else 32
    assert (found.image_size, measured) == ((size,), tried)
    assert found.epochs == pytest.approx(epochs, abs=1)
    assert (found.augment.pad, found.augment.cutout) == (size // 8, size // 4)


def test_a_size_that_is_asked_for_is_the_only_one_measured(images, measured):
    found = choice.choose(images, recipes.get("cifar10_modern").config, time.monotonic() + 60, side=64).config
    assert (found.image_size, measured) == ((64,), [64])


def test_epochs_of_a_table_fit_into_the_time(home, monkeypatch):
    config = recipes.get("table").config.model_copy(
        update={"data": str(houses.write(home / "h.csv")), "target": "price"}
    )
    table = read_table(config)
    monkeypatch.setattr(choice, "seconds_per_step", lambda *_: 0.1)
    few, many = (choice.choose_for_table(table, config, time.monotonic() + left).config for left in (60, 6000))
    assert few.epochs < many.epochs
    steps = table.counts["train"] // few.batch_size
    assert few.epochs == pytest.approx(0.75 * 60 / (0.1 * steps), abs=1)

"""Small benchmarks with real workers, which take turns and learn the same. No timing is asserted.

`python -m benchmarks --quick` fails if the contestants on Keras's backends and PyTorch disagree.
"""

import csv

import numpy as np
import pytest

from benchmarks import dense, problem, table
from benchmarks.controller import Contestant
from benchmarks.session import Session

NUMPY = Contestant("numpy", "numpy_hand", "project")
AGAIN = Contestant("numpy again", "numpy_hand", "project", ours=True)
SHALLOW = Contestant("shallow", "numpy_hand", "project", deepest=2, because="it has two layers")


@pytest.fixture
def session(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 500)
    # A bright stripe for each class replaces the digits.
    images = np.zeros((500, 28, 28, 1), np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 4] = rng.integers(100, 256, (4, 28, 1))
    problem.write(tmp_path / "batches.npz", problem.batches(images, labels))
    return Session(tmp_path, tmp_path, quick=True, command="test", machine="test")


def measure(session, contestants, size):
    rows = list(dense.measure(session, contestants, (size,), "stripes"))
    assert session.disagreements == session.failed == []
    by_name = {(row.measure, row.contestant): row for row in rows}
    assert len(by_name) == len(rows)
    assert all(row.median > 0 for row in rows)
    return by_name


@pytest.mark.slow
def test_startup_and_studies_are_measured_in_fresh_processes(session, tmp_path):
    found = measure(session, (NUMPY, AGAIN, SHALLOW), dense.Size(3, 12, starts=1, rounds=2, studies=1))
    assert session.skipped == ["depth 3, width 12: shallow is skipped: it has two layers"]
    assert len(found) == 2 * 4
    assert found["steady state", "numpy again"].rounds == 2
    assert found["steady state", "numpy again"].best_peer == "numpy"
    assert found["steady state", "numpy"].versions == f"numpy {np.__version__}"
    assert 10 < found["peak memory", "numpy"].median < 1000

    table.write(tmp_path / "dense.csv", list(found.values()))
    with (tmp_path / "dense.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(found)


def test_a_contestant_that_learns_something_else_is_reported(session):
    cheat = Contestant("cheat", "numpy_hand", "project", options=("unknown",))
    measurement = dense.Size(3, 12, starts=1)
    real = problem.Problem.from_json

    # Other initial weights give other losses.
    def other(contestant, task):
        asked = real(task)
        if contestant is cheat:
            weights = problem.initial_weights(3, 12, seed=1)
            problem.write(session.folder / "others.npz", weights)
            asked = problem.Problem(asked.batches, str(session.folder / "others.npz"), 3, 12)
        return asked.to_json()

    start = session.start
    session.start = lambda contestant, task, where: start(contestant, other(contestant, task), where)
    list(dense.measure(session, (NUMPY, cheat), (measurement,), "stripes"))
    assert session.disagreements[0].startswith("depth 3, width 12: cheat differs from numpy by")

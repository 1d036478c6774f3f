"""A tiny alternation of real workers: no timing is asserted, only that all run, learn the same and are written down."""

import csv

import numpy as np
import pytest

from benchmarks import dense, problem, table
from benchmarks.controller import Contestant
from benchmarks.session import Session

VARIABLES = {"KERAS_BACKEND": "tensorflow"}
CONTESTANTS = (
    Contestant("numpy", "numpy_hand", "project"),
    Contestant("Keras", "keras_layers", "project", variables=VARIABLES),
    Contestant("ours", "ours_stack", "project", variables=VARIABLES, ours=True),
    Contestant("nobody", "numpy_hand", "project", deepest=2, because="it is shallow"),
)


@pytest.fixture
def session(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 500)
    # Digits of a kind: a stripe of light for each class.
    images = np.zeros((500, 28, 28, 1), np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 4] = rng.integers(100, 256, (4, 28, 1))
    problem.write(tmp_path / "batches.npz", problem.batches(images, labels))
    return Session(tmp_path, tmp_path, quick=True, command="test", machine="test")


def test_contestants_alternate_and_learn_the_same(session, tmp_path):
    (rows,) = dense.run(session, CONTESTANTS, (dense.Size(3, 12, starts=1, rounds=2, studies=1),), "stripes", None)
    assert session.disagreements == session.failed == []
    assert session.skipped == ["depth 3, width 12: nobody is skipped: it is shallow"]
    measured = {(row.measure, row.contestant): row for row in rows}
    assert len(measured) == len(rows) == 4 * 3
    assert all(row.median > 0 for row in rows)
    assert measured["steady state", "ours"].rounds == 2
    assert measured["steady state", "ours"].best_peer in {"numpy", "Keras"}
    assert measured["steady state", "numpy"].versions == f"numpy {np.__version__}"
    assert measured["peak memory", "numpy"].median < measured["peak memory", "Keras"].median

    table.write(tmp_path / "dense.csv", rows)
    with (tmp_path / "dense.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(rows)


def test_one_that_learns_something_else_is_found_out(session):
    cheat = Contestant("cheat", "numpy_hand", "project", options=("unknown",))
    honest = CONTESTANTS[0]
    measurement = dense.Size(3, 12, starts=1)
    real = problem.Problem.from_json

    # The cheat starts from other weights: what the controller compares are the losses that workers tell.
    def other(contestant, task):
        asked = real(task)
        if contestant is cheat:
            weights = problem.initial_weights(3, 12, seed=1)
            problem.write(session.folder / "others.npz", weights)
            asked = problem.Problem(3, 12, asked.batches, str(session.folder / "others.npz"))
        return asked.to_json()

    start = session.start
    session.start = lambda contestant, task, where: start(contestant, other(contestant, task), where)
    list(dense.run(session, (honest, cheat), (measurement,), "stripes", None))
    assert session.disagreements[0].startswith("depth 3, width 12: cheat differs from numpy by")

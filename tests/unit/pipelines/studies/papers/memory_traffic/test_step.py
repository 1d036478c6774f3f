import functools

import keras
import numpy as np
import pytest

from highway_keras.models import from_preset
from highway_keras.surgery import unstacked
from pipelines.studies.papers.memory_traffic import step
from pipelines.studies.papers.memory_traffic.hlo import moved
from pipelines.studies.papers.memory_traffic.lower_bound import least

PRESETS = {"highway": "mnist_dense_50", "residual": "mnist_dense_50_residual", "plain": "mnist_dense_50_plain"}


def build(kind, blocks, units=32, batch=256):
    keras.utils.set_random_seed(0)
    match = {} if kind == "highway" else {"match": "width"}
    net = unstacked(from_preset(PRESETS[kind], input_shape=(4,), depth=blocks + 1, width=units, **match))
    x = np.random.default_rng(0).normal(size=(batch, 4)).astype("float32")
    y = np.eye(10, dtype="float32")[np.arange(batch) % 10]
    return net, step.compiled(net, keras.optimizers.Adam(0.01, global_clipnorm=5.0), x, y)


@pytest.fixture(scope="module")
def compiled():
    """Compiles each net once."""
    return functools.cache(build)


@pytest.mark.parametrize("kind", ["highway", pytest.param("residual", marks=pytest.mark.slow), "plain"])
def test_a_block_more_moves_what_its_passes_do(compiled, kind):
    programs = {blocks: compiled(kind, blocks) for blocks in (1, 2)}
    counted = moved(programs[2][1].program) - moved(programs[1][1].program)
    by_hand = [
        least(kind, blocks=blocks, units=32, batch=256, inputs=4, parameters=net.count_params()).total
        for blocks, (net, _) in programs.items()
    ]
    # A lower bound; where XLA computes something twice rather than store it, a program moves more.
    assert 0.95 < counted / (by_hand[1] - by_hand[0]) < 2


def test_steps_train(compiled):
    net, one = compiled("plain", 2)
    before = [np.array(array) for array in net.get_weights()]
    one.run(3)
    if keras.backend.backend() == "tensorflow":
        # On JAX copies are trained.
        assert all(np.any(new != old) for new, old in zip(net.get_weights(), before, strict=True))


def test_steps_and_copies_take_turns(monkeypatch):
    monkeypatch.setattr(step, "COPIED", 1001)
    ran = []
    seconds, bandwidth = step.alternating(step.Step("", ran.append), 3, rounds=4, seconds=1e-6)
    assert seconds.shape == bandwidth.shape == (4,)
    assert seconds.min() > 0 < bandwidth.min()
    # Once to begin with and once to see how long it takes; then the rounds, all alike.
    assert ran[:2] == [1, 1]
    assert len(ran) == 6
    assert len(set(ran[2:])) == 1

import functools

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from highway_keras.models import from_preset
from highway_keras.surgery import unstacked
from pipelines.studies.papers.memory_traffic import step
from pipelines.studies.papers.memory_traffic.lower_bound import least
from pipelines.studies.papers.memory_traffic.step import moved

PRESETS = {"highway": "mnist_dense_50", "residual": "mnist_dense_50_residual", "plain": "mnist_dense_50_plain"}
PROGRAM = """HloModule jit_f, entry_computation_layout={(f32[4,8]{1,0})->f32[4,8]{1,0}}

%fused_computation (a: f32[4,8], b: f32[8]) -> f32[4,8] {
  %a = f32[4,8]{1,0} parameter(0)
  ROOT %wide = f32[4,8]{1,0} tanh(%a)
}

ENTRY %main.1 (x: f32[4,8], w: f32[8,8], b: f32[8]) -> (f32[4,8], s32[4]) {
  %x = f32[4,8]{1,0} parameter(0), metadata={op_name="x"}
  w = f32[8,8]{1,0} parameter(1)
  %b = f32[8]{0} parameter(2)
  %dot.1 = f32[4,8]{1,0} dot(%x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %fusion = f32[4,8]{1,0} fusion(%dot.1, /*index=1*/%b), kind=kLoop, calls=%fused_computation
  %pair = (f32[4]{0}, s32[4]{0}) custom-call(%fusion), custom_call_target="x"
  %second = s32[4]{0} get-tuple-element(%pair), index=1
  ROOT %tuple = (f32[4,8]{1,0}, s32[4]{0}) tuple(%fusion, %second)
}
"""


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
def test_another_block_moves_the_bytes_of_its_passes(compiled, kind):
    programs = {blocks: compiled(kind, blocks) for blocks in (1, 2)}
    counted = moved(programs[2][1].program) - moved(programs[1][1].program)
    by_hand = [
        least(kind, blocks=blocks, units=32, batch=256, inputs=4, parameters=net.count_params()).total
        for blocks, (net, _) in programs.items()
    ]
    # A lower bound: a program moves more where XLA recomputes a value instead of storing it.
    assert 0.95 < counted / (by_hand[1] - by_hand[0]) < 2


def test_steps_train(compiled):
    net, one = compiled("plain", 2)
    before = [np.array(array) for array in net.get_weights()]
    one.run(3)
    if keras.backend.backend() == "tensorflow":
        # On JAX, copies of the weights are trained.
        assert all(np.any(new != old) for new, old in zip(net.get_weights(), before, strict=True))


def test_steps_and_copies_take_turns(monkeypatch):
    monkeypatch.setattr(step, "COPIED", 1001)
    ran = []
    seconds, bandwidth = step.alternating(step.Step("", ran.append), 3, rounds=4, seconds=1e-6)
    assert seconds.shape == bandwidth.shape == (4,)
    assert seconds.min() > 0 < bandwidth.min()
    # Once to warm up and once to time it; then the rounds, all alike.
    assert ran[:2] == [1, 1]
    assert len(ran) == 6
    assert len(set(ran[2:])) == 1


def test_operands_and_results_are_counted_unless_they_are_fused():
    product = 4 * (32 + 64 + 32)
    fusion = 4 * (32 + 8 + 32)
    call = 4 * (32 + 4 + 4)
    assert moved(PROGRAM) == product + fusion + call


def test_the_count_of_a_real_program_is_that_of_xla():
    def loss(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return jnp.mean(x**2)

    weights = [jnp.ones((32, 32)) / 32] * 3
    compiled = jax.jit(jax.grad(loss)).lower(weights, jnp.ones((64, 32))).compile()
    assert moved(compiled.as_text()) == pytest.approx(compiled.cost_analysis()["bytes accessed"], rel=0.01)


def test_a_loop_is_refused():
    compiled = jax.jit(lambda x: jax.lax.fori_loop(0, x[0].astype(int), lambda _, y: y * 2, x)).lower(jnp.ones(4))
    with pytest.raises(ValueError, match="A program with a loop cannot be counted"):
        moved(compiled.compile().as_text())


def test_text_that_is_not_a_program_is_refused():
    with pytest.raises(ValueError, match="it has no entry computation"):
        moved("HloModule nothing\n")

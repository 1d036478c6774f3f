import jax
import jax.numpy as jnp
import pytest

from pipelines.studies.papers.memory_traffic.hlo import moved

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


def test_operands_and_results_are_counted_and_what_is_fused_is_not():
    product = 4 * (32 + 64 + 32)
    fusion = 4 * (32 + 8 + 32)
    call = 4 * (32 + 4 + 4)
    assert moved(PROGRAM) == product + fusion + call


def test_of_a_real_program_the_count_is_that_of_xla():
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


def test_what_is_no_program_is_refused():
    with pytest.raises(ValueError, match="it has no entry computation"):
        moved("HloModule nothing\n")

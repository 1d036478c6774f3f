import keras
import numpy as np
import pytest

from pipelines.training.initialization import drawing

OPTION = "jax_disable_most_optimizations"
on_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="other backends compile nothing to draw weights")


def drawn():
    return np.asarray(keras.random.normal((31, 17), seed=3))


def test_what_is_drawn_differs_by_a_rounding_at_most():
    with drawing():
        quickly = drawn()
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()
    np.testing.assert_allclose(quickly, drawn(), rtol=1e-5, atol=1e-6)


@on_jax
def test_all_else_is_optimized():
    import jax

    with drawing():
        assert jax.config.read(OPTION)
    assert not jax.config.read(OPTION)

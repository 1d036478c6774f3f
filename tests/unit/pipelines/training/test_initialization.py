import keras
import numpy as np
import pytest

from pipelines.training.initialization import fast_initializers

OPTION = "jax_disable_most_optimizations"


def drawn():
    return np.asarray(keras.random.normal((31, 17), seed=3))


def test_random_numbers_differ_by_rounding_at_most():
    with fast_initializers():
        quickly = drawn()
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()
    np.testing.assert_allclose(quickly, drawn(), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="an option of JAX")
def test_the_option_holds_in_the_block_only():
    import jax

    with fast_initializers():
        assert jax.config.read(OPTION)
    assert not jax.config.read(OPTION)

"""`scan`: carried values, kept outputs, and a program whose size does not depend on the length."""

import numpy as np
import pytest
from keras import ops

from highway_keras.layers.scan import scan, stacked
from tests.unit.highway_keras.backend import BACKEND, array, compiled, compiles

ROWS = np.arange(1, 9, dtype="float32").reshape(4, 2)
OTHERS = ROWS[::-1].copy()


def doubled_and_added(carry, row):
    return 2 * carry + row[0], (carry, row[0] * row[1])


def by_hand(order):
    carry, kept = np.ones(2), np.zeros((4, 2))
    for number in order:
        kept[number] = carry
        carry = 2 * carry + ROWS[number]
    return carry, kept


@pytest.mark.parametrize("reverse", [False, True])
def test_outputs_are_stacked_in_row_order(reverse):
    carry, (kept, products) = scan(doubled_and_added, ops.ones(2), (ROWS, OTHERS), kept=2, reverse=reverse)
    expected = by_hand(range(3, -1, -1) if reverse else range(4))
    np.testing.assert_array_equal(array(carry), expected[0])
    np.testing.assert_array_equal(array(stacked(kept)), expected[1])
    np.testing.assert_array_equal(array(stacked(products)), ROWS * OTHERS)


def test_what_one_loop_keeps_another_reads():
    _, (kept, _) = scan(doubled_and_added, ops.ones(2), (ROWS, OTHERS), kept=2)
    total, _ = scan(lambda carry, row: (carry + row[0], ()), ops.zeros(2), (kept,))
    np.testing.assert_array_equal(array(total), by_hand(range(4))[1].sum(axis=0))


def test_a_body_may_have_no_outputs_and_a_single_row():
    carry, kept = scan(lambda carry, row: (carry + row[0], ()), ops.ones(2), (ROWS[:1],))
    np.testing.assert_array_equal(array(carry), 1 + ROWS[0])
    assert kept == ()


@compiles
@pytest.mark.parametrize("xla", [True, False] if BACKEND == "tensorflow" else [True])
def test_the_gradient_compiles_in_one_program(xla):
    def last(start, rows):
        return ops.sum(scan(lambda carry, row: (carry * row[0], ()), start, (rows,))[0])

    start = np.array([1.0, 2.0], "float32")
    found = compiled(lambda start, rows: differentiate(last, start, rows), xla)(start, ROWS)
    np.testing.assert_allclose(array(found[0]), ROWS.prod(axis=0), rtol=1e-6)
    np.testing.assert_allclose(array(found[1]), start * ROWS.prod(axis=0) / ROWS, rtol=1e-6)


def differentiate(function, *arguments):
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(arguments)
            y = function(*arguments)
        return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(y, arguments)]
    import jax

    return jax.grad(function, argnums=(0, 1))(*arguments)


@compiles
def test_the_body_is_traced_equally_often_for_any_length():
    def traces(length):
        calls = []

        def body(carry, row):
            calls.append(1)
            return carry + row[0], (carry,)

        compiled(lambda rows: scan(body, ops.zeros(2), (rows,), kept=1)[1])(np.ones((length, 2), "float32"))
        return len(calls)

    assert traces(2) == traces(60) > 0

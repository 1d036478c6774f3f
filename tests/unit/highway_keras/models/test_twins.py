from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highway_keras.models import dense
from highway_keras.models.dense import matched_width
from highway_keras.models.presets import CIFAR_STAGES, MNIST_STAGES
from highway_keras.models.stages import matched, parameters, scaled
from tests.unit.highway_keras.backend import MARKS_ON_JAX, few_examples

pytestmark = MARKS_ON_JAX


@pytest.mark.parametrize("kind", ["plain", "residual"])
@pytest.mark.parametrize("depth", [10, 100])
def test_a_dense_twin_of_50_units_has_71_as_in_the_paper(kind, depth):
    model = dense((28, 28, 1), 10, depth, 50, kind=kind, match="parameters")
    name = f"{kind}_{depth - 1}" if depth > 99 else f"{kind}_{depth - 1:02}"
    layer = model.get_layer(name if kind == "plain" else f"{name}_h")

    assert layer.units == 71
    assert layer.count_params() == 5_112
    assert dense((28, 28, 1), 10, 2, 50).get_layer("highway").count_params() == 5_100


def test_a_net_without_blocks_keeps_its_width():
    assert dense((4,), 2, 1, 50, kind="plain", match="parameters").get_layer("entry").units == 50
    assert dense((4,), 2, 3, 50, kind="highway", match="parameters").get_layer("entry").units == 50
    assert dense((4,), 2, 3, 50, kind="plain", match="width").get_layer("entry").units == 50


@few_examples
@given(width=st.integers(1, 2000))
def test_no_other_dense_width_comes_closer(width):
    found = matched_width(width)

    def miss(units):
        return abs(units * (units + 1) - 2 * width * (width + 1))

    assert all(miss(found) <= miss(units) for units in (found - 1, found + 1, width))


@pytest.mark.parametrize(
    ("stages", "input_shape", "filters"),
    [(MNIST_STAGES, (28, 28, 1), [45, 45, 45]), (CIFAR_STAGES, (32, 32, 3), [44, 110, 176, 138])],
)
def test_no_other_common_factor_comes_closer(stages, input_shape, filters):
    count = partial(parameters, input_shape=input_shape, outputs=10, hidden=None)
    highway = count(stages, kind="highway")
    twin = matched(stages, highway, partial(count, kind="plain"))
    widest = max(stage.filters for stage in stages)

    def miss(twin):
        return abs(count(twin, kind="plain") - highway)

    assert [stage.filters for stage in twin] == filters
    assert miss(twin) / highway < 0.01
    assert all(miss(twin) <= miss(scaled(stages, n / widest)) for n in range(1, 3 * widest))

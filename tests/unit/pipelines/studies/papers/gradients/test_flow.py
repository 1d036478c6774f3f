"""Measured gradients and Jacobians against known ones."""

import keras
import numpy as np
import pytest

import highway_keras
from highway_keras.analysis.gradients import gradient_norms
from pipelines.studies.papers.gradients import flow

BLOCKS = 3
IMAGES = np.random.default_rng(0).normal(size=(12, 6, 6, 1)).astype("float32")
LABELS = np.eye(4, dtype="float32")[np.arange(12) % 4]


def net(kind="highway", **settings):
    keras.utils.set_random_seed(0)
    settings = {"depth": BLOCKS + 1, "width": 5, "match": "width"} | settings
    if kind == "highway":
        del settings["match"]
    preset = "mnist_dense_50" if kind == "highway" else f"mnist_dense_50_{kind}"
    return highway_keras.from_preset(preset, input_shape=(6, 6, 1), outputs=4, **settings)


@pytest.mark.parametrize(
    ("kind", "first"), [("highway", "highway_01"), ("residual", "residual_01_h"), ("plain", "plain_01")]
)
def test_norms_are_reported_by_block(kind, first):
    made = net(kind)
    found = flow.norms(made, IMAGES, LABELS)
    names = [f"kernel/{block}" for block in (1, 2, 3)]
    gates = [f"gate/{block}" for block in (1, 2, 3)] if kind == "highway" else []
    assert list(found) == [*names, *gates]
    known = gradient_norms(made, IMAGES, LABELS)
    assert found["kernel/1"] == pytest.approx(known[first]["kernel"], rel=1e-5)
    assert len(set(found.values())) == len(found)


def test_the_formula_agrees_with_the_measurement():
    made = net(transform_bias=-1.0)
    found = flow.jacobians(made, IMAGES)
    assert found["error"] < 1e-3
    for block in (1, 2, 3):
        assert 0.4 < found[f"identity/{block}"] < 0.95
        assert found[f"diagonal/{block}"] == pytest.approx(found[f"identity/{block}"], abs=0.3)
    assert found["path/1"] < found["path/2"] < found["path/3"] < 1


@pytest.mark.parametrize("kind", ["highway", "residual", "plain"])
def test_the_gain_of_all_blocks_is_that_of_their_joint_jacobian(kind):
    # Wide enough that random weights change a gradient as much as they do on average.
    made = net(kind, width=50)
    blocks = keras.Model(made.get_layer("entry").output, made.get_layer("logits").input)
    state = np.asarray(made.get_layer("entry")(IMAGES.reshape(12, -1)))
    found = flow.jacobians(made, IMAGES)
    assert found["gain/1"] == pytest.approx(flow.factor(flow.differences(blocks, state)), rel=1e-3)
    gains = [found[f"gain/{block}"] for block in (1, 2, 3)]
    assert sorted(gains, reverse=kind == "residual") == gains
    assert ("error" in found) == (kind == "highway")


def test_closed_gates_leave_the_identity_alone():
    found = flow.jacobians(net(transform_bias=-30.0), IMAGES)
    for block in (1, 2, 3):
        for name in ("identity", "diagonal", "gain", "path"):
            assert found[f"{name}/{block}"] == pytest.approx(1, abs=1e-4)
        assert found[f"rest/{block}"] == pytest.approx(0, abs=1e-6)


def test_a_factor_is_the_gain_of_a_gradient_of_random_direction():
    generator = np.random.default_rng(0)
    jacobian = generator.normal(size=(4, 5, 5))
    gradients = generator.normal(size=(4, 100_000, 5))
    before, after = (np.square(some).sum(-1).mean() for some in (gradients, gradients @ jacobian))
    assert flow.factor(jacobian) == pytest.approx(np.sqrt(after / before), rel=0.01)

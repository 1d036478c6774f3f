"""SavedModel and ONNX of every kind of net, loaded from disk, compared with Keras on real digits."""

import io
import shutil

import keras
import numpy as np
import onnx
import pytest
from PIL import Image

import highway_keras
from pipelines.core.config import Preprocess
from pipelines.core.errors import UserError
from pipelines.data.images import conversion
from pipelines.data.preprocess import fit
from pipelines.export import forms, graph, onnx_model, parity, reference, stack
from pipelines.export.form import TracedNet
from serving import image_files
from serving.session import has_loop
from tests.digits import all_digits
from tests.finished_run import scramble, tiny_net

LABELS = tuple("0123456789")


@pytest.fixture(scope="module")
def digits():
    """Twenty digits of all classes, a black and a white image."""
    images = all_digits()[0][::250, ..., None]
    return np.concatenate([images, np.zeros_like(images[:1]), np.full_like(images[:1], 255)])


def write(folder, model, fitted, *, kind="natural", gates=True, labels=LABELS, only=None):
    """Writes all forms of a net, or one of them.

    The conversion of digits, which takes as long as everything else together, is the same for all nets.
    """
    shape = model.input_shape[1:]
    images = np.zeros((1, *shape), np.uint8)
    predict, convert = graph.prediction(model, fitted, labels, gates), conversion.converter(kind, shape)
    source = TracedNet(
        predict,
        convert,
        conversion.side_of(kind, shape),
        images,
        reference.Reference(images, *[images] * 4).files(kind),
        "train",
        examples=None,
    )
    for form in forms.requested():
        if only in {None, form.key}:
            form.write(source, folder)


def measure(folder, model, fitted, images, *, kind="natural", gates=True, labels=LABELS):
    convert = conversion.converter(kind, model.input_shape[1:])
    expected, _ = reference.compute(model, fitted, images, convert=convert, kind=kind, gates=gates)
    return parity.measure(folder, forms.requested(), expected, split="train", labels=labels, kind=kind, precision=None)


def conv(**arguments):
    return highway_keras.from_preset("mnist_conv_16" + arguments.pop("twin", ""), width=8, **arguments)


def dense(**arguments):
    arguments = {"depth": 6, "width": 16} | arguments
    return highway_keras.from_preset("mnist_dense_50" + arguments.pop("twin", ""), **arguments)


def deep(**arguments):
    """Builds a net whose stack keeps its loop, and whose gates let x through."""
    return dense(**arguments | {"depth": stack.UNROLLED + 2, "transform_bias": -6.0})


@pytest.mark.parametrize(
    ("build", "twin", "policy"),
    [
        (conv, "", "mixed_bfloat16"),
        pytest.param(deep, "", "mixed_float16", marks=pytest.mark.slow),
        pytest.param(dense, "", "float32", marks=pytest.mark.slow),
        pytest.param(conv, "_residual", "mixed_float16", marks=pytest.mark.slow),
        pytest.param(dense, "_plain", "mixed_bfloat16", marks=pytest.mark.slow),
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
    gates = not twin
    write(tmp_path, model, fitted, gates=gates)
    measured = measure(tmp_path, model, fitted, digits, gates=gates)
    assert measured.batch_sizes == (1, 3, 18)
    assert (measured.onnx.gate_means is not None) == (measured.saved_model.gate_means is not None) == gates
    # Otherwise a form with the same output for every image would pass.
    assert np.ptp(reference.keras_probabilities(model, fitted, digits), axis=0).max() > 0.1


@pytest.fixture(scope="module")
def written(tmp_path_factory, digits):
    """A tiny net, its preprocessing, and its forms on disk."""
    folder, model, fitted = tmp_path_factory.mktemp("written"), tiny_net(), fit(Preprocess(), digits)
    write(folder, model, fitted)
    return folder, model, fitted


@pytest.fixture
def changed(tmp_path, written):
    """A copy of the written forms."""
    return shutil.copytree(written[0], tmp_path / "changed")


@pytest.mark.parametrize("kind", ["natural", pytest.param("digit", marks=pytest.mark.slow)])
def test_image_files_and_pixels_give_the_same_inputs_with_preprocessing_by_channel(tmp_path, digits, kind):
    model, fitted = tiny_net(), fit(Preprocess(mean="channel", contrast=1.0), digits)
    write(tmp_path, model, fitted, kind=kind)
    measured = measure(tmp_path, model, fitted, digits, kind=kind).files
    assert (measured.images, measured.pixels) == (22, 0)


@pytest.mark.parametrize(
    "kind", ["natural", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("padded", "squashed"))]
)
def test_colour_images_and_photographs_give_the_same_inputs(tmp_path, kind):
    keras.utils.set_random_seed(0)
    image = keras.Input((32, 32, 3))
    x = keras.layers.MaxPooling2D(4)(keras.layers.Conv2D(4, 3, strides=2)(image))
    model = keras.Model(image, keras.layers.Dense(10)(keras.layers.Flatten()(x)))
    colours = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype="uint8")
    fitted = fit(Preprocess(mean="channel"), colours)
    write(tmp_path, model, fitted, kind=kind, gates=False)
    assert measure(tmp_path, model, fitted, colours, kind=kind, gates=False).files.pixels <= 1
    photograph = np.random.default_rng(1).integers(0, 256, (70, 45, 4), dtype="uint8")
    file = io.BytesIO()
    Image.fromarray(photograph).save(file, "PNG")
    expected = conversion.converter(kind, (32, 32, 3))(photograph)["image"]
    seen = onnx_model.load(tmp_path).files([file.getvalue()])["image"][0]
    np.testing.assert_allclose(seen.astype(int), expected, atol=1)
    np.testing.assert_array_equal(image_files.decode(file.getvalue(), "a"), photograph)


def test_another_net_on_disk_is_refused(written, digits):
    folder, _, fitted = written
    with pytest.raises(UserError, match=r"the exported SavedModel does not compute .* 22 images of the train split"):
        measure(folder, tiny_net(seed=1), fitted, digits)


@pytest.mark.slow
def test_labels_in_another_order_are_refused(written, digits):
    with pytest.raises(UserError, match="the exported SavedModel does not compute"):
        measure(*written, digits, labels=LABELS[::-1])


@pytest.mark.slow
def test_an_image_file_graph_of_another_kind_is_refused(written, changed, digits):
    _, model, fitted = written
    write(changed, model, fitted, kind="digit", only="onnx")
    with pytest.raises(UserError, match=r"path from image files does not compute|picture\.onnx gives"):
        measure(changed, model, fitted, digits)


@pytest.mark.slow
def test_an_onnx_file_with_other_preprocessing_is_refused(written, changed, digits):
    _, model, fitted = written
    write(changed, model, fit(Preprocess(scale=1 / 256), digits), only="onnx")
    with pytest.raises(UserError, match="the exported ONNX model does not compute"):
        measure(changed, model, fitted, digits)


def test_onnx_inputs_and_outputs_have_names_types_and_a_free_batch_axis(written):
    found = onnx.load(written[0] / "model.onnx")
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
        "label": (onnx.TensorProto.STRING, ["batch"]),
        "gate_means": (onnx.TensorProto.FLOAT, ["batch", 2]),
        "gate_maps": (onnx.TensorProto.FLOAT, ["batch", 7 * 7]),
    }
    assert {entry.domain: entry.version for entry in found.opset_import}[""] == onnx_model.OPSET


def without_highway_layers():
    return keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(500)])


@pytest.mark.parametrize(
    "build",
    [
        lambda: deep(width=50),
        pytest.param(without_highway_layers, marks=pytest.mark.slow),
        pytest.param(lambda: dense(width=300), marks=pytest.mark.slow),
    ],
)
def test_weights_are_stored_once(tmp_path, digits, build):
    model = build()
    write(tmp_path, model, fit(Preprocess(), digits), gates=False)
    size = sum(path.stat().st_size for path in (tmp_path / "variables").iterdir())
    assert size < 1.1 * 4 * model.count_params()
    assert (tmp_path / "model.onnx").stat().st_size < 1.1 * 4 * model.count_params()
    # Most of it is the graph from image files to inputs, which TensorFlow stores as a function and as a signature.
    assert (tmp_path / "saved_model.pb").stat().st_size < 250_000


@pytest.mark.parametrize(("build", "loops"), [(dense, []), (deep, ["Scan"])])
def test_shallow_stacks_are_unrolled_and_deep_ones_are_a_scan(tmp_path, digits, build, loops):
    write(tmp_path, build(), fit(Preprocess(), digits), only="onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert [kind for kind in kinds if kind in {"Loop", "Scan"}] == loops
    assert has_loop((tmp_path / "model.onnx").read_bytes()) == bool(loops)

"""Parity with PyTorch itself: modules as their sources define them, their training, and files of their weights."""

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayStack, weights
from tests.unit.highway_keras.backend import array, gradient_tensors
from tests.unit.highway_keras.stacks import assert_close

torch = pytest.importorskip("torch")
nn = torch.nn


class HighwayLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.transform, self.gate = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, x):
        t = torch.sigmoid(self.gate(x))
        return t * torch.relu(self.transform(x)) + (1 - t) * x


class HighwayConv2d(nn.Module):
    def __init__(self, channels, size=3):
        super().__init__()
        self.transform_conv = nn.Conv2d(channels, channels, size, padding=size // 2, bias=False)
        self.transform_bn = nn.BatchNorm2d(channels)
        self.gate_conv = nn.Conv2d(channels, channels, size, padding=size // 2)

    def forward(self, x):
        t = torch.sigmoid(self.gate_conv(x))
        return t * torch.relu(self.transform_bn(self.transform_conv(x))) + (1 - t) * x


class HighwayNetwork(nn.Module):
    def __init__(self, inputs, size, depth, outputs):
        super().__init__()
        self.input_proj = nn.Linear(inputs, size)
        self.highway_layers = nn.ModuleList([HighwayLayer(size) for _ in range(depth)])
        self.output_proj = nn.Linear(size, outputs)

    def forward(self, x):
        x = torch.relu(self.input_proj(x))
        for layer in self.highway_layers:
            x = layer(x)
        return self.output_proj(x)


class Joined(nn.Module):
    """Highway of AllenNLP (`_layers`) and fairseq (`layers`)."""

    def __init__(self, name, size, depth):
        super().__init__()
        self.name = name
        setattr(self, name, nn.ModuleList([nn.Linear(size, 2 * size) for _ in range(depth)]))

    def forward(self, x):
        for layer in getattr(self, self.name):
            h, gate = layer(x).chunk(2, dim=-1)
            gate = torch.sigmoid(gate)
            x = gate * x + (1 - gate) * torch.relu(h)
        return x


def random(module):
    """Draws all weights and statistics at random, so that none has a neutral value."""
    generator = torch.Generator().manual_seed(0)
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) - (0.4 if tensor.dim() > 1 else 0.0))
    return module.eval()


def save(module, folder, kind):
    if kind == "pt":
        torch.save(module.state_dict(), folder / "net.pt")
    else:
        pytest.importorskip("safetensors.torch").save_file(module.state_dict(), folder / "net.safetensors")
    return folder / f"net.{kind}"


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
@pytest.mark.parametrize(("layout", "name"), [("allennlp", "_layers"), ("fairseq", "layers")])
def test_layers_with_joined_kernels_compute_what_pytorch_computes(layout, name, kind, tmp_path):
    module = random(Joined(name, 6, 12))
    x = torch.randn(4, 6)
    stack = HighwayStack(12)
    stack.build((None, 6))
    path = save(module, tmp_path, kind)
    weights.load(stack, path, layout=layout, inputs=x.numpy(), outputs=module(x).detach().numpy())


def test_inputs_and_outputs_may_be_tensors():
    module, x = random(Joined("layers", 6, 2)), torch.randn(4, 6)
    stack = HighwayStack(2)
    stack.build((None, 6))
    outputs = module(x)
    assert outputs.requires_grad
    weights.load(stack, module.state_dict(), layout="fairseq", inputs=x, outputs=outputs)


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_a_network_computes_what_pytorch_computes(kind, tmp_path):
    module = random(HighwayNetwork(3, 6, 4, 2))
    x = torch.randn(4, 3)
    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((3,)), dense(6, "relu"), HighwayStack(4), dense(2)])
    path = save(module, tmp_path, kind)
    weights.load(
        model, path, layout="HighwayNetwork", inputs=x.numpy(), outputs=module(x).detach().numpy(), tolerance=1e-4
    )


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_a_convolution_computes_what_pytorch_computes(kind, tmp_path):
    module = random(HighwayConv2d(4, 5))
    x = torch.randn(2, 4, 7, 6)
    layer = ConvHighway(5, batch_normalization=True, data_format="channels_last")
    layer.build((None, 7, 6, 4))
    inputs, outputs = (np.moveaxis(tensor.detach().numpy(), 1, -1) for tensor in (x, module(x)))
    path = save(module, tmp_path, kind)
    weights.load(layer, path, layout="HighwayConv2d", inputs=inputs, outputs=outputs, tolerance=1e-4, fold_epsilon=True)


def in_keras(layout):
    """Returns a published module's twin."""
    if layout == "HighwayNetwork":
        dense = keras.layers.Dense
        return keras.Sequential([keras.Input((3,)), dense(6, "relu"), HighwayStack(4), dense(2)])
    layer = {
        "HighwayLayer": Highway(),
        "HighwayConv2d": ConvHighway(
            5,
            batch_normalization=True,
            normalization_epsilon=1e-5,
            normalization_momentum=0.9,
            data_format="channels_first",
        ),
    }[layout]
    layer.build((None, 6) if layout == "HighwayLayer" else (None, 4, 7, 6))
    return layer


@pytest.mark.parametrize(
    ("layout", "module", "shape"),
    [
        ("HighwayLayer", lambda: HighwayLayer(6), (5, 6)),
        ("HighwayConv2d", lambda: HighwayConv2d(4, 5), (2, 4, 7, 6)),
        ("HighwayNetwork", lambda: HighwayNetwork(3, 6, 4, 2), (5, 3)),
    ],
)
def test_a_training_step_is_that_of_pytorch(layout, module, shape):
    module, layer, expected = random(module()).train(), in_keras(layout), in_keras(layout)
    weights.load(layer, module.state_dict(), layout=layout)
    previous = array(layer.normalization.moving_variance) if layout == "HighwayConv2d" else None
    generator = torch.Generator().manual_seed(1)
    # Small inputs make the epsilon of the batch normalization count.
    x = (torch.randn(shape, generator=generator) / 20).requires_grad_()
    y = module(x)
    upstream = torch.randn(y.shape, generator=generator)
    (y * upstream).sum().backward()
    # Gradients have the names, axes and signs of their weights.
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    weights.load(expected, {**module.state_dict(), **gradients}, layout=layout)
    found = gradient_tensors(layer, x.detach().numpy(), upstream.numpy(), training=True)
    for gradient, other in zip(found, [x.grad.numpy(), *expected.trainable_variables], strict=True):
        assert_close(array(gradient), array(other), "float32")
    if layout == "HighwayConv2d":
        moving = expected.normalization
        np.testing.assert_allclose(array(layer.normalization.moving_mean), array(moving.moving_mean), rtol=1e-5)
        # PyTorch's running variance takes n - 1 for n.
        batch = (array(moving.moving_variance) - 0.9 * previous) / 0.1
        ours = 0.9 * previous + 0.1 * batch * (1 - 1 / (2 * 7 * 6))
        np.testing.assert_allclose(array(layer.normalization.moving_variance), ours, rtol=1e-5)


def test_tensors_with_gradients_and_of_low_precision_load():
    module = random(HighwayNetwork(3, 6, 2, 2)).bfloat16()
    stack = HighwayStack(2)
    stack.build((None, 6))
    weights.load(stack, dict(module.named_parameters()), layout="HighwayNetwork")
    expected = module.highway_layers[1].gate.weight.detach().float().numpy().T
    np.testing.assert_array_equal(np.asarray(stack.get_weights()[2])[1], expected)


def test_a_checkpoint_of_more_than_a_state_dict_is_refused(tmp_path):
    torch.save({"model": HighwayLayer(3).state_dict(), "epoch": 3}, tmp_path / "net.pt")
    stack = HighwayStack(1)
    stack.build((None, 3))
    with pytest.raises(ValueError, match=r"must hold a state dict.*'model', 'epoch'"):
        weights.load(stack, tmp_path / "net.pt", layout="HighwayLayer")

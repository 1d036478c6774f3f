"""The layouts in which other systems store highway layers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WeightLayout:
    """Names, axes and signs of the weights of a highway layer in another system.

    In every name, `{n}` stands for the number of the layer.

    Args:
        source: where the layer is defined: repository and file.
        kernel: name of H's kernel.
        bias: name of H's bias.
        gate_kernel: name of the gate's kernel; None if `kernel` holds the outputs of H followed by the gate's.
        gate_bias: name of the gate's bias; None if it is joined to H's in the same way.
        outputs_first: whether kernels are `(outputs, inputs, ...)`, as in PyTorch, rather than `(..., inputs,
            outputs)`, as in Keras and TensorFlow.
        gates_carry: whether the gate is the carry gate C, so y = C * x + (1 - C) * H. As 1 - sigmoid(z) is sigmoid(-z),
            its kernel and bias change sign.
        activation: the activation of H; None if the source lets the user choose, so that it cannot be checked.
        normalization: name of the batch normalization between H's kernel and its activation, if any.
        epsilon: epsilon of the batch normalization.
        momentum: weight of the past in its moving averages (PyTorch's `momentum` is 1 minus this).
        dense: names of the dense layers before and after the highway layers, and their activations.
        ignored: regular expression for the ends of names that hold no weights, such as optimizer slots.

    Example:
        WeightLayout("our own net", kernel="h.weight", bias="h.bias", gate_kernel="t.weight", gate_bias="t.bias",
               outputs_first=True, activation="tanh")
    """

    source: str
    kernel: str
    bias: str
    gate_kernel: str | None = None
    gate_bias: str | None = None
    outputs_first: bool = False
    gates_carry: bool = False
    activation: str | None = "relu"
    normalization: str | None = None
    epsilon: float = 1e-5
    momentum: float = 0.9
    dense: tuple[tuple[str, str], ...] = ()
    ignored: str | None = None


LAYOUTS: dict[str, WeightLayout] = {
    "HighwayLayer": WeightLayout(
        "PyTorch tutorials: class HighwayLayer with `transform` and `gate`, both nn.Linear",
        kernel="transform.weight",
        bias="transform.bias",
        gate_kernel="gate.weight",
        gate_bias="gate.bias",
        outputs_first=True,
    ),
    "HighwayConv2d": WeightLayout(
        "PyTorch tutorials: class HighwayConv2d with `transform_conv`, `transform_bn` and `gate_conv`",
        kernel="transform_conv.weight",
        bias="transform_bn.bias",
        gate_kernel="gate_conv.weight",
        gate_bias="gate_conv.bias",
        outputs_first=True,
        normalization="transform_bn",
        ignored=r"\.num_batches_tracked",
    ),
    "HighwayNetwork": WeightLayout(
        "PyTorch tutorials: class HighwayNetwork, a list of HighwayLayer between two nn.Linear",
        kernel="highway_layers.{n}.transform.weight",
        bias="highway_layers.{n}.transform.bias",
        gate_kernel="highway_layers.{n}.gate.weight",
        gate_bias="highway_layers.{n}.gate.bias",
        outputs_first=True,
        dense=(("input_proj", "relu"), ("output_proj", "linear")),
    ),
    "allennlp": WeightLayout(
        "allenai/allennlp: allennlp/modules/highway.py",
        kernel="_layers.{n}.weight",
        bias="_layers.{n}.bias",
        outputs_first=True,
        gates_carry=True,
        activation=None,
    ),
    "fairseq": WeightLayout(
        "facebookresearch/fairseq: fairseq/modules/highway.py",
        kernel="layers.{n}.weight",
        bias="layers.{n}.bias",
        outputs_first=True,
        gates_carry=True,
    ),
    # "carry" in the names of ELMo and Keras 1 is the transform gate: y = carry * H + (1 - carry) * x.
    "elmo": WeightLayout(
        "allenai/bilm-tf: bilm/model.py; read in allenai/allennlp: allennlp/modules/elmo.py",
        kernel="CNN_high_{n}/W_transform",
        bias="CNN_high_{n}/b_transform",
        gate_kernel="CNN_high_{n}/W_carry",
        gate_bias="CNN_high_{n}/b_carry",
    ),
    "keras1": WeightLayout(
        "keras-team/keras 1: keras/layers/core.py, class Highway",
        kernel="highway_{n}/highway_{n}_W",
        bias="highway_{n}/highway_{n}_b",
        gate_kernel="highway_{n}/highway_{n}_W_carry",
        gate_bias="highway_{n}/highway_{n}_b_carry",
        activation=None,
    ),
    "keras2": WeightLayout(
        "keras-team/keras 2: keras/legacy/layers.py, class Highway",
        kernel="highway_{n}/highway_{n}/W",
        bias="highway_{n}/highway_{n}/b",
        gate_kernel="highway_{n}/highway_{n}/W_carry",
        gate_bias="highway_{n}/highway_{n}/b_carry",
        activation=None,
    ),
    "tacotron": WeightLayout(
        "keithito/tacotron: models/modules.py, highwaynet in cbhg",
        kernel="highway_{n}/H/kernel",
        bias="highway_{n}/H/bias",
        gate_kernel="highway_{n}/T/kernel",
        gate_bias="highway_{n}/T/bias",
        ignored=r"/(Adam|Adam_1|ExponentialMovingAverage)",
    ),
    "tacotron_pytorch": WeightLayout(
        "r9y9/tacotron_pytorch: tacotron_pytorch/tacotron.py, class Highway in CBHG",
        kernel="highways.{n}.H.weight",
        bias="highways.{n}.H.bias",
        gate_kernel="highways.{n}.T.weight",
        gate_bias="highways.{n}.T.bias",
        outputs_first=True,
    ),
}
"""The known layouts by name."""

"""The convolutional highway layer."""

from typing import Any

import keras
from keras import ops

from highway_keras.layers import fused_blend, replicas
from highway_keras.layers.affine import AffineHighway
from highway_keras.layers.arguments import positive_integer, positive_integers
from highway_keras.layers.base import Shape, expand_mask
from highway_keras.layers.fused_blend import Activations
from highway_keras.layers.lesion import is_lesioned
from highway_keras.layers.recording import is_recording


@keras.saving.register_keras_serializable(package="highway_keras")
class ConvHighway(AffineHighway):
    """Convolutional highway layer: y = T * H + (1 - T) * x, where H and T are convolutions of x.

    Convolves along the 1, 2 or 3 axes other than batch and channels, with stride 1 and zero padding, so that the output
    has the shape of the input. H and the gates share kernel size, padding, dilation and groups. A mask, such as that of
    a padded sequence, passes through; masked positions count as zero, like padding. The axes of the mask are the batch
    and the leading convolved axes.

    Args:
        kernel_size: length of the kernel along each axis: one integer for all, or one per axis.
        padding: "same"; or "causal" for sequences, so that an output depends on no later input.
        dilation_rate: spacing between the kernel's inputs along each axis, in the form of `kernel_size`.
        groups: number of groups of channels that are convolved separately; must divide the channels.
        data_format: "channels_last" or "channels_first"; None uses `keras.config.image_data_format()`. On TensorFlow,
            whose CPU kernels support channels first in some dtypes only, channels are moved last around each
            convolution.

    The other arguments are those of `Highway`.

    Input shape:
        `(batch, steps, channels)`, `(batch, height, width, channels)` or `(batch, depth, height, width, channels)`;
        with "channels_first" the channels follow the batch. `channels` must be defined.

    Output shape:
        Same as the input.

    Raises:
        ValueError: if an argument is out of range, or the gate activation cannot be a gate.

    Example:
        inputs = keras.Input((28, 28, 1))
        x = keras.layers.Conv2D(16, 5, activation="relu")(inputs)
        x = highway_keras.ConvHighway(3, transform_bias=-1.0)(x)

    Reference:
        Srivastava, Greff, Schmidhuber 2015, "Training Very Deep Networks", arXiv 1507.06228, section 2.1.
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        *,
        padding: str = "same",
        dilation_rate: int | tuple[int, ...] = 1,
        groups: int = 1,
        data_format: str | None = None,
        activation: Any = "relu",
        gate_activation: Any = "sigmoid",
        transform_bias: Any = -2.0,
        depth: int | None = None,
        carry_gate: str = "coupled",
        use_bias: bool = True,
        kernel_initializer: Any = "he_normal",
        transform_initializer: Any = "he_normal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        transform_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        transform_constraint: Any = None,
        bias_constraint: Any = None,
        batch_normalization: bool = False,
        normalization_epsilon: float = 1e-3,
        normalization_momentum: float = 0.99,
        dropout: float = 0.0,
        seed: int | None = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            activation=activation,
            gate_activation=gate_activation,
            transform_bias=transform_bias,
            depth=depth,
            carry_gate=carry_gate,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            transform_initializer=transform_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            transform_regularizer=transform_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            transform_constraint=transform_constraint,
            bias_constraint=bias_constraint,
            batch_normalization=batch_normalization,
            normalization_epsilon=normalization_epsilon,
            normalization_momentum=normalization_momentum,
            dropout=dropout,
            seed=seed,
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            **kwargs,
        )
        if data_format not in (None, "channels_last", "channels_first"):
            raise ValueError(
                "`data_format` must be 'channels_last', 'channels_first', or None for "
                f"`keras.config.image_data_format()`. Received: data_format={data_format!r}"
            )
        if padding not in ("same", "causal"):
            raise ValueError(f"`padding` must be 'same' or 'causal'. Received: padding={padding!r}")
        self.data_format = data_format or keras.config.image_data_format()
        self.kernel_size = positive_integers("kernel_size", kernel_size)
        self.dilation_rate = positive_integers("dilation_rate", dilation_rate)
        self.groups = positive_integer("groups", groups, "the number of groups of channels")
        self.padding = padding
        self.input_spec = keras.InputSpec(min_ndim=3, max_ndim=5)

    def build(self, input_shape: Shape) -> None:
        """Creates the weights; the rank of the input determines the number of convolved axes."""
        axes, channels = len(input_shape) - 2, input_shape[self.unit_axis]
        for argument in ("kernel_size", "dilation_rate"):
            value = getattr(self, argument)
            if len(_per_axis(value, axes)) != axes:
                raise ValueError(
                    f"`{argument}` must be one integer, or one for each input axis other than batch and channels, "
                    f"{axes} here. Received: {argument}={value}, input_shape={input_shape}"
                )
        if self.padding == "causal" and axes != 1:
            raise ValueError(
                "`padding='causal'` is for sequences, (batch, steps, channels), whose steps have an order. "
                f"Received: input_shape={input_shape}"
            )
        if channels is not None and channels % self.groups:
            raise ValueError(
                f"`groups` must divide the number of channels. Received: groups={self.groups}, {channels} channels"
            )
        super().build(input_shape)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Computes y; in training, fuses gate and blend into one pass over memory where that is faster."""
        inputs = ops.convert_to_tensor(inputs, dtype=self.compute_dtype)
        activations = Activations(self.activation, self.gate_activation)
        plain = self.carry_gate == "coupled" and not self.dropout and not self._channels_first
        if self.batch_normalization:
            # Masked positions do not count in the statistics, and other replicas' examples do.
            plain = plain and mask is None and self.normalization.trainable and replicas.count() == 1
        if not (training and plain and fused_blend.is_faster(inputs, activations)) or is_recording() or is_lesioned():
            return super().call(inputs, training, mask)
        masked = self._masked(inputs, mask)
        products = self._narrow_product(masked, self.kernel), self._narrow_product(masked, self.transform_kernel)
        transform_bias = ops.cast(self.transform_bias, self._gate_dtype)
        if self.batch_normalization:
            return self._normalized(products, transform_bias, inputs, activations)
        bias = ops.zeros_like(transform_bias) if self.bias is None else ops.cast(self.bias, self._gate_dtype)
        return fused_blend.fused_blend(products, (bias, transform_bias), inputs, activations)

    def _normalized(self, products: Any, transform_bias: Any, inputs: Any, activations: Activations) -> Any:
        normalization = self.normalization
        options = activations, normalization.epsilon
        learned = normalization.gamma.value, normalization.beta.value
        y, mean, variance = fused_blend.normalized_fused_blend(products, learned, transform_bias, inputs, options)
        normalization.follow(mean, variance)
        return y

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments in JSON-serializable form."""
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "padding": self.padding,
            "dilation_rate": self.dilation_rate,
            "groups": self.groups,
            "data_format": self.data_format,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ConvHighway":
        """Creates a layer from its config; older configs without a `data_format` mean channels last."""
        return super().from_config({"data_format": "channels_last", **config})

    @property
    def unit_axis(self) -> int:
        """The axis of channels in inputs, gates and outputs."""
        return 1 if self._channels_first else -1

    @property
    def _channels_first(self) -> bool:
        return self.data_format == "channels_first"

    def _kernel_shape(self, input_shape: Shape) -> Shape:
        channels = input_shape[self.unit_axis] or 0
        return (*_per_axis(self.kernel_size, len(input_shape) - 2), channels // self.groups, channels)

    def _affine(self, inputs: Any, kernel: Any) -> Any:
        move = self._channels_first and keras.backend.backend() == "tensorflow"
        data_format = "channels_last" if move else self.data_format
        inputs = self._units_last(inputs) if move else inputs
        padding = "same"
        if self.padding == "causal":
            steps = 1 if data_format == "channels_last" else 2
            before = (kernel.shape[0] - 1) * _per_axis(self.dilation_rate, 1)[0]
            inputs = ops.pad(inputs, [(before if axis == steps else 0, 0) for axis in range(3)])
            padding = "valid"
        maps = ops.conv(
            inputs, kernel, strides=1, padding=padding, data_format=data_format, dilation_rate=self.dilation_rate
        )
        return self._units_back(maps) if move else maps

    def _masked(self, inputs: Any, mask: Any) -> Any:
        if mask is None:
            return inputs
        mask = ops.expand_dims(mask, 1) if self._channels_first else mask
        return ops.where(expand_mask(mask, len(inputs.shape)), inputs, ops.zeros_like(inputs))

    def _along_units(self, array: Any, rank: int) -> Any:
        return ops.reshape(array, (-1, *[1] * (rank - 2))) if self._channels_first else array

    def _units_last(self, array: Any) -> Any:
        return ops.moveaxis(array, self.unit_axis, -1)

    def _units_back(self, array: Any) -> Any:
        return ops.moveaxis(array, -1, self.unit_axis)


def _per_axis(value: int | tuple[int, ...], axes: int) -> tuple[int, ...]:
    return (value,) * axes if isinstance(value, int) else value

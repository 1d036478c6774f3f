"""The convolutional highway layer."""

from typing import Any

import keras
from keras import ops

from highway_keras.layers import fused_blend
from highway_keras.layers.base import BaseHighway, Shape, expand_mask
from highway_keras.layers.fused_blend import Activations
from highway_keras.layers.lesion import is_lesioned
from highway_keras.layers.recording import is_recording


@keras.saving.register_keras_serializable(package="highway_keras")
class ConvHighway(BaseHighway):
    """Convolutional highway layer: y = T * H + (1 - T) * x, where H and T are convolutions of x.

    Convolves along the 1, 2 or 3 axes other than batch and channels, with stride 1 and zero padding, so that the output
    has the shape of the input. A mask, such as that of a padded sequence, passes through; masked positions count as
    zero, like padding. The axes of the mask are the batch and the leading convolved axes.

    Args:
        kernel_size: length of the kernel along each axis: one integer for all, or one per axis.
        data_format: "channels_last" or "channels_first"; None takes `keras.config.image_data_format()`. On TensorFlow,
            whose CPU kernels support channels first in some dtypes only, channels are moved last around each
            convolution.
        **kwargs: all arguments of `Highway`.

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

    def __init__(self, kernel_size: int | tuple[int, ...], *, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if data_format not in (None, "channels_last", "channels_first"):
            raise ValueError(
                "`data_format` must be 'channels_last', 'channels_first', or None for "
                f"`keras.config.image_data_format()`. Received: data_format={data_format!r}"
            )
        self.data_format = data_format or keras.config.image_data_format()
        sizes = (kernel_size,) if isinstance(kernel_size, int) else kernel_size
        valid = isinstance(sizes, (tuple, list)) and all(isinstance(size, int) and size > 0 for size in sizes)
        if not valid or not sizes:
            raise ValueError(
                f"`kernel_size` must be a positive integer, or a tuple of them. Received: kernel_size={kernel_size}"
            )
        self.kernel_size = kernel_size if isinstance(kernel_size, int) else tuple(kernel_size)
        self.input_spec = keras.InputSpec(min_ndim=3, max_ndim=5)

    def build(self, input_shape: Shape) -> None:
        """Creates the weights; the rank of the input determines the number of convolved axes."""
        axes = len(input_shape) - 2
        if len(self._sizes(axes)) != axes:
            raise ValueError(
                "`kernel_size` must be one integer, or one for each input axis other than batch and channels, "
                f"{axes} here. Received: kernel_size={self.kernel_size}, input_shape={input_shape}"
            )
        super().build(input_shape)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Computes y; in training it fuses gate and blend into one pass over memory where that is faster."""
        inputs = ops.convert_to_tensor(inputs, dtype=self.compute_dtype)
        activations = Activations(self.activation, self.gate_activation)
        plain = self.carry_gate == "coupled" and not self.batch_normalization and not self.dropout
        plain = plain and not self._channels_first
        if not (training and plain and fused_blend.is_faster(inputs, activations)) or is_recording() or is_lesioned():
            return super().call(inputs, training, mask)
        masked = self._masked(inputs, mask)
        products = self._narrow_product(masked, self.kernel), self._narrow_product(masked, self.transform_kernel)
        biases = ops.cast(self.bias, self._gate_dtype), ops.cast(self.transform_bias, self._gate_dtype)
        return fused_blend.fused_blend(products, biases, inputs, activations)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments in JSON-serializable form."""
        return {**super().get_config(), "kernel_size": self.kernel_size, "data_format": self.data_format}

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
        channels = input_shape[self.unit_axis]
        return (*self._sizes(len(input_shape) - 2), channels, channels)

    def _affine(self, inputs: Any, kernel: Any) -> Any:
        if self._channels_first and keras.backend.backend() == "tensorflow":
            maps = ops.conv(self._units_last(inputs), kernel, strides=1, padding="same", data_format="channels_last")
            return self._units_back(maps)
        return ops.conv(inputs, kernel, strides=1, padding="same", data_format=self.data_format)

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

    def _sizes(self, axes: int) -> tuple[int, ...]:
        return (self.kernel_size,) * axes if isinstance(self.kernel_size, int) else self.kernel_size

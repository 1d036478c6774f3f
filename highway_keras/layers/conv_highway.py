"""The convolutional highway layer."""

from typing import Any

import keras
from keras import ops

from highway_keras.layers import one_pass
from highway_keras.layers.base import BaseHighway, Shape, expand_mask
from highway_keras.layers.lesion import is_lesioned
from highway_keras.layers.one_pass import Activations
from highway_keras.layers.recording import is_recording


@keras.saving.register_keras_serializable(package="highway_keras")
class ConvHighway(BaseHighway):
    """Convolutional highway layer: y = T * H + (1 - T) * x, where H and T are convolutions of x.

    It convolves along the 1, 2 or 3 axes between batch and channels, with stride 1 and zero padding, so that the output
    has the shape of the input. A mask, as that of a padded sequence, passes through, and what is masked is seen as
    zero, as padding is.

    Args:
        kernel_size: length of the kernel along each axis: one integer for all, or one for each.
        **kwargs: every argument of `Highway`.

    Input shape:
        `(batch, steps, channels)`, `(batch, height, width, channels)` or `(batch, depth, height, width, channels)`;
        `channels` defined.

    Output shape:
        That of the input.

    Raises:
        ValueError: for an argument out of its range, and for a gate activation that cannot be a gate.

    Example:
        inputs = keras.Input((28, 28, 1))
        x = keras.layers.Conv2D(16, 5, activation="relu")(inputs)
        x = highway_keras.ConvHighway(3, transform_bias=-1.0)(x)

    Reference:
        Srivastava, Greff, Schmidhuber 2015, "Training Very Deep Networks", arXiv 1507.06228, section 2.1.
    """

    def __init__(self, kernel_size: int | tuple[int, ...], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        sizes = (kernel_size,) if isinstance(kernel_size, int) else kernel_size
        valid = isinstance(sizes, (tuple, list)) and all(isinstance(size, int) and size > 0 for size in sizes)
        if not valid or not sizes:
            raise ValueError(
                f"`kernel_size` must be a positive integer, or a tuple of them. Received: kernel_size={kernel_size}"
            )
        self.kernel_size = kernel_size if isinstance(kernel_size, int) else tuple(kernel_size)
        self.input_spec = keras.InputSpec(min_ndim=3, max_ndim=5)

    def build(self, input_shape: Shape) -> None:
        """Makes the weights; the rank of the input says along how many axes to convolve."""
        axes = len(input_shape) - 2
        if len(self._sizes(axes)) != axes:
            raise ValueError(
                f"`kernel_size` must be one integer or as many as the input has axes between batch and channels, "
                f"{axes} here. Received: kernel_size={self.kernel_size}, input_shape={input_shape}"
            )
        super().build(input_shape)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """As every highway layer; in training with gate and blend in one pass over memory, where that pays."""
        inputs = ops.convert_to_tensor(inputs, dtype=self.compute_dtype)
        activations = Activations(self.activation, self.gate_activation)
        plain = self.carry_gate == "coupled" and not self.batch_normalization and not self.dropout
        if not (training and plain and one_pass.pays(inputs, activations)) or is_recording() or is_lesioned():
            return super().call(inputs, training, mask)
        seen = self._seen(inputs, mask)
        products = self._narrow_product(seen, self.kernel), self._narrow_product(seen, self.transform_kernel)
        biases = ops.cast(self.bias, self._gate_dtype), ops.cast(self.transform_bias, self._gate_dtype)
        return one_pass.blended(products, biases, inputs, activations)

    def get_config(self) -> dict[str, Any]:
        """The arguments, in a form that can be written as JSON."""
        return {**super().get_config(), "kernel_size": self.kernel_size}

    def _kernel_shape(self, input_shape: Shape) -> Shape:
        return (*self._sizes(len(input_shape) - 2), input_shape[-1], input_shape[-1])

    def _affine(self, inputs: Any, kernel: Any) -> Any:
        return ops.conv(inputs, kernel, strides=1, padding="same", data_format="channels_last")

    def _seen(self, inputs: Any, mask: Any) -> Any:
        if mask is None:
            return inputs
        return ops.where(expand_mask(mask, len(inputs.shape)), inputs, ops.zeros_like(inputs))

    def _sizes(self, axes: int) -> tuple[int, ...]:
        return (self.kernel_size,) * axes if isinstance(self.kernel_size, int) else self.kernel_size

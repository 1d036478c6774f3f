"""The maths of one layer of a stack: products, activations, and how they are arranged."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import keras
from keras import activations, ops

from highway_keras.layers.equations import DERIVATIVES, blend, blend_in_torch

Activation = Callable[[Any], Any]


WIDE = 300
"""Number of units from which two products, with H's and T's kernels, are faster than concatenating the kernels, and on
JAX from which activations are example-major."""


class Weights(NamedTuple):
    """The weights of a stack.

    The kernels of H and T are concatenated, `[depth, units, 2 * units]`, or apart, `[depth, units, units]` each.
    """

    kernels: tuple[Any, ...]
    bias: Any  # [depth, units]
    transform_bias: Any  # [depth, units]

    @classmethod
    def of(cls, arrays: Any) -> "Weights":
        """Builds weights from a sequence of their arrays; see `arrays`."""
        *kernels, bias, transform_bias = arrays
        return cls(tuple(kernels), bias, transform_bias)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The kernels and both biases in one sequence."""
        return (*self.kernels, self.bias, self.transform_bias)

    @property
    def depth(self) -> int:
        """The number of layers."""
        return int(self.bias.shape[0])


@dataclass(frozen=True)
class LayerMath:
    """The maths of one layer: its activations and the dtype of its products; all else is in the gate's dtype.

    Activations are feature-major, `[units, examples]`, which makes the small products faster.
    """

    activation: Activation
    gate_activation: Activation
    product_dtype: str

    @property
    def has_gradient(self) -> bool:
        """True if the hand-written gradient applies: the derivatives of both activations are known."""
        return self.activation in DERIVATIVES and self.gate_activation in DERIVATIVES

    def enter(self, x: Any) -> Any:
        """Arranges inputs `[examples, units]` in the layout that `block_and_gate` expects."""
        return ops.transpose(x)

    def leave(self, y: Any) -> Any:
        """Arranges outputs as `[examples, units]`."""
        return ops.transpose(y)

    def layers_last(self, array: Any) -> Any:
        """Arranges arrays of all layers, `[depth, units, examples]`, as `[examples, depth, units]`."""
        return ops.transpose(array, (2, 0, 1))

    def joined(self, *kernels: Any) -> tuple[Any, ...]:
        """Concatenates the kernels of H and T, `[depth, units, units]`, unless they are wide."""
        return (ops.concatenate(kernels, axis=2),) if kernels[0].shape[-1] < WIDE else kernels

    def block_and_gate(self, x: Any, layer: Any) -> tuple[Any, Any]:
        """Computes H and T of one layer, `[units, examples]`."""
        *kernels, bias, transform_bias = layer
        products = [self._product(ops.transpose(kernel), x, x.dtype) for kernel in kernels]
        block, gate = products if len(kernels) == 2 else ops.split(products[0], 2, axis=0)
        # One bias addition before the split would keep XLA from vectorizing the activations.
        block = self.activation(block + ops.expand_dims(bias, -1))
        return block, self.gate_activation(gate + ops.expand_dims(transform_bias, -1))

    def blend(self, block: Any, x: Any, gate: Any) -> Any:
        """Computes y, in the shape of x."""
        return blend(block, x, gate, None)

    def aligned(self, block: Any, gate: Any, kernels: int) -> tuple[Any, ...]:
        """Joins the gradients of the pre-activations of H and T if their kernels are."""
        return (block, gate) if kernels == 2 else (ops.concatenate([block, gate], axis=0),)

    def add_product(self, summand: Any, left: Any, right: Any) -> Any:
        """Computes `summand + left @ right`."""
        return summand + self._product(left, right, summand.dtype)

    def weight_gradients(self, x: Any, sums: Any) -> tuple[Any, Any]:
        """Computes the gradients of a kernel and its biases for all layers in one product.

        Args:
            x: inputs, `[depth, units, examples]`.
            sums: gradients of the pre-activations, `[depth, n, examples]` with n the last axis of the kernel.

        Returns:
            `[depth, units, n]` and `[depth, n]`.
        """
        return self._product(x, ops.swapaxes(sums, -1, -2), x.dtype), ops.sum(sums, axis=-1)

    def _product(self, left: Any, right: Any, dtype: Any) -> Any:
        """Multiplies matrices in the products' dtype and casts the result to `dtype`."""
        return ops.cast(ops.matmul(ops.cast(left, self.product_dtype), ops.cast(right, self.product_dtype)), dtype)


class ExampleMajorLayerMath(LayerMath):
    """The maths of one layer on activations `[examples, units]`, which makes large products faster on JAX."""

    def enter(self, x: Any) -> Any:
        """Returns the inputs as they are."""
        return x

    def leave(self, y: Any) -> Any:
        """Returns the outputs as they are."""
        return y

    def layers_last(self, array: Any) -> Any:
        """Arranges arrays `[depth, examples, units]` as `[examples, depth, units]`."""
        return ops.swapaxes(array, 0, 1)

    def joined(self, *kernels: Any) -> tuple[Any, ...]:
        """Returns the kernels apart: their concatenation would be copied."""
        return kernels

    def block_and_gate(self, x: Any, layer: Any) -> tuple[Any, Any]:
        """Computes H and T of one layer, `[examples, units]`."""
        kernel, transform_kernel, bias, transform_bias = layer
        activation, gate_activation = self._activations
        return activation(self._sums(bias, x, kernel)), gate_activation(self._sums(transform_bias, x, transform_kernel))

    def add_product(self, summand: Any, left: Any, right: Any) -> Any:
        """Computes `summand + right @ left.T`."""
        return summand + self._product(right, ops.transpose(left), summand.dtype)

    def weight_gradients(self, x: Any, sums: Any) -> tuple[Any, Any]:
        """Computes the gradients of a kernel and its biases from arrays `[depth, examples, ...]`; see `LayerMath`."""
        return self._product(ops.swapaxes(x, -1, -2), sums, x.dtype), ops.sum(sums, axis=-2)

    @property
    def _activations(self) -> tuple[Activation, Activation]:
        return self.activation, self.gate_activation

    def _sums(self, bias: Any, x: Any, kernel: Any) -> Any:
        return self._product(x, kernel, x.dtype) + bias


class TorchLayerMath(ExampleMajorLayerMath):
    """The maths of one layer in PyTorch's own functions and autograd.

    PyTorch runs one operation after another, and on arrays of 50 x 128 numbers the overhead of `keras.ops` is about as
    long as the operation itself. In this layout its products are as fast, and adding biases is faster.
    """

    def blend(self, block: Any, x: Any, gate: Any) -> Any:
        """Computes y in one operation."""
        return blend_in_torch(block, x, gate)

    def checkpointed(self, function: Callable[[Any], Any], x: Any) -> Any:
        """Computes `function(x)`, whose intermediate results are computed again in the backward pass."""
        from torch.utils.checkpoint import checkpoint

        return checkpoint(function, x, use_reentrant=False)

    def _sums(self, bias: Any, x: Any, kernel: Any) -> Any:
        import torch

        narrow = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(self.product_dtype)
        if narrow is None:
            return torch.addmm(bias, x, kernel)
        return bias + (x.to(narrow) @ kernel.to(narrow)).to(x.dtype)

    @cached_property
    def _activations(self) -> tuple[Activation, Activation]:
        import torch

        own = {activations.relu: torch.relu, activations.sigmoid: torch.sigmoid, activations.tanh: torch.tanh}
        return own.get(self.activation, self.activation), own.get(self.gate_activation, self.gate_activation)


def layer_math(activation: Activation, gate_activation: Activation, product_dtype: str, units: int) -> LayerMath:
    """Returns the maths of one layer in the form that suits the backend and the number of units; see `LayerMath`."""
    kind = LayerMath
    if keras.backend.backend() == "torch":
        kind = TorchLayerMath
    elif keras.backend.backend() == "jax" and units >= WIDE:
        kind = ExampleMajorLayerMath
    return kind(activation, gate_activation, product_dtype)

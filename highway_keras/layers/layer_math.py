"""The maths of one layer of a stack, on feature-major activations `[units, examples]`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import keras
from keras import activations, ops

from highway_keras.layers.equations import DERIVATIVES

Activation = Callable[[Any], Any]


WIDE = 300
"""Units from which on two products with the kernels of H and T take less time than concatenating the kernels."""


class Weights(NamedTuple):
    """The weights of a stack.

    The kernels of H and T are concatenated, `[depth, units, 2 * units]`, or apart, `[depth, units, units]` each.
    """

    kernels: tuple[Any, ...]
    bias: Any  # [depth, units]
    transform_bias: Any  # [depth, units]

    @classmethod
    def of(cls, arrays: Any) -> "Weights":
        """Makes weights of a sequence of their arrays; see `arrays`."""
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
    """The maths of one layer: its activations and the dtype of its products; all else is in the gate's dtype."""

    activation: Activation
    gate_activation: Activation
    product_dtype: str

    @property
    def has_gradient(self) -> bool:
        """True if the hand-written gradient applies: the derivatives of both activations are known."""
        return self.activation in DERIVATIVES and self.gate_activation in DERIVATIVES

    def slices(self, weights: Weights) -> tuple[Any, ...]:
        """Returns the arrays `[depth, ...]` of which `block_and_gate` takes a row."""
        return weights.arrays

    def block_and_gate(self, x: Any, layer: Any) -> tuple[Any, Any]:
        """Computes H and T of one layer, `[units, examples]`."""
        *kernels, bias, transform_bias = layer
        products = [self._product(ops.transpose(kernel), x, x.dtype) for kernel in kernels]
        block, gate = products if len(kernels) == 2 else ops.split(products[0], 2, axis=0)
        # One bias addition before the split would keep XLA from vectorizing the activations.
        block = self.activation(block + ops.expand_dims(bias, -1))
        return block, self.gate_activation(gate + ops.expand_dims(transform_bias, -1))

    def aligned(self, block: Any, gate: Any, kernels: int) -> tuple[Any, ...]:
        """Joins the gradients of the pre-activations of H and T if their kernels are."""
        return (block, gate) if kernels == 2 else (ops.concatenate([block, gate], axis=0),)

    def add_product(self, summand: Any, left: Any, right: Any) -> Any:
        """Computes `summand + left @ right`."""
        return summand + self._product(left, right, summand.dtype)

    def weight_gradients(self, x: Any, sums: Any) -> tuple[Any, Any]:
        """Computes the gradients of a kernel and its biases for one layer, or for all layers stacked.

        Args:
            x: inputs, `[..., units, examples]`.
            sums: gradients of the pre-activations, `[..., n, examples]` with n the last axis of the kernel.

        Returns:
            `[..., units, n]` and `[..., n]`.
        """
        return self._product(x, ops.swapaxes(sums, -1, -2), x.dtype), ops.sum(sums, axis=-1)

    def _product(self, left: Any, right: Any, dtype: Any) -> Any:
        """Multiplies matrices in the products' dtype and casts the result to `dtype`."""
        return ops.cast(ops.matmul(ops.cast(left, self.product_dtype), ops.cast(right, self.product_dtype)), dtype)


class TorchLayerMath(LayerMath):
    """The same in PyTorch's own functions.

    PyTorch runs one operation after another, and what `keras.ops` adds to each takes about as long as the operation
    itself on arrays of 50 x 128 numbers.
    """

    def slices(self, weights: Weights) -> tuple[Any, ...]:
        """Returns transposed kernels and columns of biases."""
        import torch

        biases = (weights.bias, weights.transform_bias)
        columns = biases if len(weights.kernels) == 2 else (torch.cat(biases, 1),)
        return (*[kernel.mT for kernel in weights.kernels], *[column.unsqueeze(-1) for column in columns])

    def block_and_gate(self, x: Any, layer: Any) -> tuple[Any, Any]:
        """Computes H and T of one layer, `[units, examples]`."""
        kernels, biases = layer[: len(layer) // 2], layer[len(layer) // 2 :]
        sums = [self.add_product(bias, kernel, x) for kernel, bias in zip(kernels, biases, strict=True)]
        block, gate = sums if len(sums) == 2 else sums[0].chunk(2)
        activation, gate_activation = self._activations
        return activation(block), gate_activation(gate)

    def aligned(self, block: Any, gate: Any, kernels: int) -> tuple[Any, ...]:
        """Joins the gradients of the pre-activations of H and T if their kernels are."""
        import torch

        return (block, gate) if kernels == 2 else (torch.cat([block, gate]),)

    def add_product(self, summand: Any, left: Any, right: Any) -> Any:
        """Computes `summand + left @ right`."""
        if self._narrow is None:
            return summand.addmm(left, right)
        return super().add_product(summand, left, right)

    def weight_gradients(self, x: Any, sums: Any) -> tuple[Any, Any]:
        """Computes the gradients of kernel and biases; see `LayerMath`."""
        return self._product(x, sums.mT, x.dtype), sums.sum(-1)

    def _product(self, left: Any, right: Any, dtype: Any) -> Any:
        if self._narrow is None:
            return left @ right
        return (left.to(self._narrow) @ right.to(self._narrow)).to(dtype)

    @cached_property
    def _narrow(self) -> Any:
        """The dtype of the products if it is narrower than the gate's, else None."""
        import torch

        return {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(self.product_dtype)

    @cached_property
    def _activations(self) -> tuple[Activation, Activation]:
        import torch

        own = {activations.relu: torch.relu, activations.sigmoid: torch.sigmoid, activations.tanh: torch.tanh}
        return own.get(self.activation, self.activation), own.get(self.gate_activation, self.gate_activation)


def layer_math(activation: Activation, gate_activation: Activation, product_dtype: str) -> LayerMath:
    """Returns the maths of one layer in the form that suits the backend; see `LayerMath`."""
    kind = TorchLayerMath if keras.backend.backend() == "torch" else LayerMath
    return kind(activation, gate_activation, product_dtype)

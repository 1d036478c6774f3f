"""Trained kernels in other forms: int8 with a scale per output, and low-rank updates (LoRA)."""

from typing import Any

import keras
from keras import initializers, ops
from keras.quantizers import abs_max_quantize

from highway_keras.layers.arguments import positive_integer
from highway_keras.layers.base import BaseHighway, Shape
from highway_keras.layers.seeds import with_distinct_seed


class AdaptableHighway(BaseHighway):
    """A highway layer whose kernels `quantize("int8")` and `enable_lora` act on.

    The properties `kernel`, `transform_kernel` and `carry_kernel` are the kernels in use: dequantized from int8, plus
    the low-rank update. Biases, gates and blend stay float32.
    """

    dtype_policy: Any
    stacked_axes = 0
    """Number of leading axes of a kernel that count layers."""

    def __init__(self, *, lora_rank: int | None = None, lora_alpha: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lora_rank: Any = lora_rank
        self.lora_alpha: Any = lora_alpha
        self.lora_enabled = False

    @property
    def trainable(self) -> bool:
        """True if the layer is trained; kernels below a low-rank update never are."""
        return bool(super().trainable)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        self._freeze_kernels()

    def build(self, input_shape: Shape) -> None:
        """Creates the weights, in int8 if the dtype policy says so."""
        if self.quantization_mode not in (None, "int8"):
            raise ValueError(
                f"`{type(self).__name__}` is quantized to int8 only. Received: dtype={self.dtype_policy.name!r}"
            )
        super().build(input_shape)
        if self.lora_rank:
            self.enable_lora(self.lora_rank, self.lora_alpha)

    @property
    def kernel(self) -> Any:
        """The kernel of H."""
        return self._effective("kernel")

    @property
    def transform_kernel(self) -> Any:
        """The kernel of the transform gate."""
        return self._effective("transform_kernel")

    @property
    def carry_kernel(self) -> Any:
        """The kernel of the carry gate, if it is separate."""
        return self._effective("carry_kernel")

    def quantize(self, mode: str | None = None, type_check: bool = True, config: Any = None) -> None:
        """Stores the kernels as int8 with one scale per output, a quarter of their size.

        The products stay in the compute dtype: inputs are not quantized. As always in Keras, `model.quantize("int8")`
        skips layers that contain layers, so call this method for a layer with batch normalization.

        Args:
            mode: "int8".
            type_check: ignored; subclasses can be quantized too.
            config: ignored except for its weight quantizer, which must be None.

        Raises:
            NotImplementedError: for another mode; `model.quantize` turns it into a warning.
            ValueError: if the config brings its own weight quantizer.

        Example:
            model.quantize("int8")
        """
        del type_check
        if mode != "int8":
            raise NotImplementedError(
                f"`{type(self).__name__}` is quantized to int8 only. Received: mode={mode!r}, layer '{self.name}'"
            )
        if getattr(config, "weight_quantizer", None) is not None:
            raise ValueError("Kernels are quantized by their absolute maximum: leave `weight_quantizer` None.")
        for name in self._kernel_names():
            kernel = getattr(self, f"_{name}")
            shape = tuple(kernel.shape)
            values, scale = abs_max_quantize(kernel, axis=self._summed_axes(shape), to_numpy=True)
            delattr(self, f"_{name}")
            setattr(self, f"_{name}", self._add_int8(name, shape))
            getattr(self, f"_{name}").assign(values)
            getattr(self, f"_{name}_scale").assign(scale)
        if self.quantization_mode is None:  # Else setting the policy called this method.
            self.dtype_policy = keras.dtype_policies.QuantizedDTypePolicy("int8", self.dtype_policy.name)

    def quantized_call(self, *args: Any, **kwargs: Any) -> Any:
        """Computes `call`, which reads the int8 kernels."""
        return self.call(*args, **kwargs)

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: Any = "he_uniform",
        b_initializer: Any = "zeros",
    ) -> None:
        """Freezes every kernel W and trains W + lora_alpha / rank * A B instead; biases keep training.

        The update starts at zero. A stack gets one A and one B for each of its layers. Files keep W, A and B apart.

        Args:
            rank: number of columns of A, and of rows of B.
            lora_alpha: numerator of the factor of the update; None uses `rank`, so that the factor is 1.
            a_initializer: initializer of A, `[..., inputs, rank]`.
            b_initializer: initializer of B, `[rank, outputs]`.

        Raises:
            ValueError: if the layer is not built, has LoRA already, or has constraints on its kernels.

        Example:
            layer.enable_lora(4)

        Reference:
            Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", arXiv 2106.09685.
        """
        if not self.built or self.lora_enabled:
            state = "has LoRA already" if self.lora_enabled else "is not built yet"
            raise ValueError(f"LoRA is enabled once, on a built layer. Received: layer '{self.name}', which {state}")
        if self.kernel_constraint or self.transform_constraint:
            raise ValueError(
                "LoRA is incompatible with constraints on kernels, which would hold for neither factor: remove "
                f"`kernel_constraint` and `transform_constraint`. Received: layer '{self.name}'"
            )
        rank = positive_integer("rank", rank, "the rank of the update")
        self._tracker.unlock()
        taken: list[Any] = []
        for name in self._kernel_names():
            kernel = getattr(self, f"_{name}")
            shape, layers = tuple(kernel.shape), tuple(kernel.shape[: self.stacked_axes])
            for factor, (size, initializer) in {
                "a": ((*shape[:-1], rank), a_initializer),
                "b": ((*layers, rank, shape[-1]), b_initializer),
            }.items():
                taken.append(with_distinct_seed(initializers.get(initializer), *taken))
                weight = self._add(f"lora_{name}_{factor}", size, taken[-1], self._penalty(name))
                setattr(self, f"lora_{name}_{factor}", weight)
        self._tracker.lock()
        self.lora_enabled, self.lora_rank = True, rank
        self.lora_alpha = rank if lora_alpha is None else lora_alpha
        self._freeze_kernels()

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments in JSON-serializable form."""
        lora = {"lora_rank": self.lora_rank, "lora_alpha": self.lora_alpha} if self.lora_rank else {}
        return {**super().get_config(), **lora}

    def _kernel_names(self) -> tuple[str, ...]:
        return ("kernel", "transform_kernel", "carry_kernel")[: 3 if self.carry_gate == "separate" else 2]

    def _freeze_kernels(self) -> None:
        if self.lora_enabled:
            for name in self._kernel_names():
                getattr(self, f"_{name}").trainable = False

    def _penalty(self, name: str) -> Any:
        return self.kernel_regularizer if name == "kernel" else self.transform_regularizer

    def _effective(self, name: str) -> Any:
        kernel = getattr(self, f"_{name}")
        if self.quantization_mode:
            kernel = ops.cast(kernel, self._gate_dtype) / getattr(self, f"_{name}_scale")
        if self.lora_enabled:
            down, up = getattr(self, f"lora_{name}_a"), getattr(self, f"lora_{name}_b")
            kernel = ops.cast(kernel, self._gate_dtype) + self.lora_alpha / self.lora_rank * ops.matmul(down, up)
        return kernel

    def _summed_axes(self, shape: Shape) -> tuple[int, ...]:
        """Returns the axes of a kernel that a product sums over; each output has its own scale."""
        return tuple(range(self.stacked_axes, len(shape) - 1))

    def _add_kernel(self, name: str, shape: Shape, initializer: Any) -> Any:
        if self.quantization_mode:
            return self._add_int8(name, shape)
        constraint = self.kernel_constraint if name == "kernel" else self.transform_constraint
        return self._add(name, shape, initializer, self._penalty(name), constraint)

    def _add_int8(self, name: str, shape: Shape) -> Any:
        self._is_quantized = True  # Keras refuses to quantize such a layer again.
        summed = self._summed_axes(shape)
        sizes = tuple(1 if axis in summed else size for axis, size in enumerate(shape))
        scale = self.add_weight(name=f"{name}_scale", shape=sizes, initializer="ones", trainable=False, autocast=False)
        setattr(self, f"_{name}_scale", scale)
        return self.add_weight(name=name, shape=shape, initializer="zeros", dtype="int8", trainable=False)

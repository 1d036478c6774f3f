"""The contestants of each benchmark."""

import os
from dataclasses import replace

from benchmarks.controller import Contestant

JAX = {"KERAS_BACKEND": "jax"}
TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}
# glibc keeps freed memory, as in `highway train`, for peers as well: otherwise, nets with tens of megabytes of
# gradients are slower, some of them in one run and not in the next.
KEPT = {
    "MALLOC_MMAP_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TOP_PAD_": str(2**26),
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

NUMPY = Contestant("NumPy by hand", "numpy_hand")
TORCH = Contestant("PyTorch", "torch_module")
TORCH_COMPILED = Contestant(
    "PyTorch, torch.compile",
    "torch_module",
    options=("compile",),
    deepest=100,
    because="PyTorch 2.13 fails at 1,000 layers: RecursionError in Inductor, after four minutes",
)
FLAX = Contestant("Flax, nn.scan", "flax_scan")
FLAX_CACHED = replace(FLAX, name="Flax, compilation cache", cached=True)
KERAS = Contestant(
    "Keras, layer by layer",
    "keras_layers",
    variables=JAX,
    deepest=100,
    because="Keras recurses once per layer and fails from about 950, and compilation grows with depth",
)
OURS_JAX = Contestant("ours, JAX", "ours_stack", variables=JAX, ours=True)
OURS_JAX_CORES = Contestant(
    "ours, JAX, one device per core",
    "ours_stack",
    options=("devices",),
    variables={**JAX, "XLA_FLAGS": f"--xla_force_host_platform_device_count={CORES}"},
    ours=True,
)
OURS_JAX_CACHED = replace(OURS_JAX_CORES, name="ours, JAX, one device per core, compilation cache", cached=True)
OURS_TORCH = Contestant("ours, PyTorch", "ours_stack", variables={"KERAS_BACKEND": "torch"}, ours=True)
OURS_TORCH_LOOP = replace(OURS_TORCH, name="ours, PyTorch, in PyTorch's loop", options=("loop",))
OURS_TENSORFLOW = Contestant("ours, TensorFlow", "ours_stack", "project", variables=TENSORFLOW, ours=True)

# Losses are compared with the first contestant's.
DENSE = tuple(
    replace(contestant, variables={**contestant.variables, **KEPT})
    for contestant in (
        *(NUMPY, TORCH, TORCH_COMPILED, FLAX, FLAX_CACHED, KERAS, OURS_JAX, OURS_JAX_CACHED, OURS_JAX_CORES),
        *(OURS_TENSORFLOW, OURS_TORCH, OURS_TORCH_LOOP),
    )
)
DENSE_QUICK = (NUMPY, TORCH, OURS_JAX)

TORCH_CONV = Contestant("PyTorch, channels last", "torch_conv")
TORCH_CONV_COMPILED = Contestant("PyTorch, torch.compile", "torch_conv", options=("compile",))
KERAS_CONV = Contestant("Keras, Conv2D layers, TensorFlow", "keras_conv", "project", variables=TENSORFLOW)
OURS_CONV = Contestant("ours, TensorFlow", "ours_conv", "project", variables=TENSORFLOW, ours=True)
OURS_CONV_JAX = Contestant("ours, JAX", "ours_conv", "project", variables=JAX, ours=True)

CONV = (TORCH_CONV, TORCH_CONV_COMPILED, KERAS_CONV, OURS_CONV, OURS_CONV_JAX)
CONV_QUICK = (TORCH_CONV, OURS_CONV)
# JAX, which takes several times as long for convolutions on a CPU, is left out.
MODERN = (TORCH_CONV, TORCH_CONV_COMPILED, OURS_CONV)

GPU = (
    Contestant("PyTorch, AMP", "torch_conv", options=("gpu",)),
    Contestant("PyTorch, AMP, torch.compile", "torch_conv", options=("gpu", "compile")),
    Contestant("ours, TensorFlow", "ours_conv", "project", ("gpu",), TENSORFLOW, ours=True),
    Contestant("ours, JAX", "ours_conv", "project", ("gpu",), JAX, ours=True),
)

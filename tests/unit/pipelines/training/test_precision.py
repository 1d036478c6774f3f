import keras
import pytest

import highway_keras
from pipelines.core import environment
from pipelines.core.run import Machine
from pipelines.training import precision

CONVOLUTIONS = (keras.layers.Conv2D(1, 3), highway_keras.ConvHighway(3))


def net(convolution=None):
    # The weights of a stack have three axes, but are not a convolution.
    dense = [keras.layers.Flatten(), highway_keras.HighwayStack(2), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((8, 8, 1)), *([convolution] if convolution else []), *dense])


def machine(*features, accelerators=()):
    return Machine(cpu="x", cpu_features=features, cores=2, accelerators=accelerators)


@pytest.mark.parametrize("wanted", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_requested_policy_is_used(wanted):
    assert precision.resolve(wanted, net(CONVOLUTIONS[0]), machine("amx_bf16")).policy == wanted


@pytest.mark.parametrize(
    ("wanted", "machine", "expected"),
    [
        ("float32", machine("avx2"), True),
        ("mixed_bfloat16", machine("avx2"), False),
        ("mixed_bfloat16", machine("avx2", "avx512_bf16"), True),
        ("mixed_float16", machine("avx512_bf16"), False),
        ("mixed_float16", machine("avx2", accelerators=("Some GPU",)), True),
    ],
)
def test_a_policy_that_the_cpu_does_not_compute_in_is_used_with_a_warning(wanted, machine, expected):
    chosen = precision.resolve(wanted, net(), machine)
    assert chosen.policy == wanted
    assert ("inexactly" not in chosen.reason) is expected


@pytest.mark.parametrize(
    ("features", "convolution", "expected"),
    [
        (("avx2", "avx512f"), CONVOLUTIONS[0], "float32"),
        (("avx512f", "avx512_bf16"), CONVOLUTIONS[0], "mixed_bfloat16"),
        (("avx512_bf16", "amx_bf16"), CONVOLUTIONS[1], "mixed_bfloat16"),
        (("avx512_bf16", "amx_bf16"), None, "float32"),
    ],
)
def test_a_cpu_takes_bfloat16_for_convolutions_if_it_multiplies_it(features, convolution, expected):
    chosen = precision.resolve("auto", net(convolution), machine(*features))
    assert chosen.policy == expected
    assert chosen.reason


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((9, 0), "mixed_bfloat16"), ((8, 0), "mixed_bfloat16"), ((7, 5), "mixed_float16"), ((6, 1), "float32")],
)
def test_a_gpu_decides_by_its_compute_capability(monkeypatch, capability, expected):
    monkeypatch.setattr(environment, "compute_capability", lambda: capability)
    chosen = precision.resolve("auto", net(), machine(accelerators=("Some GPU",)))
    assert chosen.policy == expected
    assert "Some GPU" in chosen.reason


def test_a_tpu_takes_bfloat16(monkeypatch):
    monkeypatch.setattr(environment, "compute_capability", lambda: None)
    assert precision.resolve("auto", net(), machine(accelerators=("TPU v5",))).policy == "mixed_bfloat16"


def test_the_policy_is_restored():
    before = keras.config.dtype_policy().name
    with precision.policy("mixed_float16"):
        assert keras.config.dtype_policy().name == "mixed_float16"
    assert keras.config.dtype_policy().name == before
    with pytest.raises(ValueError, match="nothing"), precision.policy("mixed_float16"):
        keras.layers.Dense(1, dtype="nothing")
    assert keras.config.dtype_policy().name == before

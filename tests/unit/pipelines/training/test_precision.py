import keras
import pytest

from pipelines import environment
from pipelines.run import Machine
from pipelines.training import precision


def net(convolutional):
    layers = [keras.layers.Conv2D(2, 3), keras.layers.Flatten()] if convolutional else [keras.layers.Flatten()]
    return keras.Sequential([keras.Input((8, 8, 1)), *layers, keras.layers.Dense(2)])


def machine(*features, accelerators=()):
    return Machine(cpu="x", cpu_features=features, cores=2, accelerators=accelerators)


@pytest.mark.parametrize("wanted", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_what_is_asked_for_is_taken(wanted):
    assert precision.resolve(wanted, net(True), machine("amx_bf16")).policy == wanted


@pytest.mark.parametrize(
    ("features", "convolutional", "expected"),
    [
        (("avx2", "avx512f"), True, "float32"),
        (("avx512f", "avx512_bf16"), True, "mixed_bfloat16"),
        (("avx512_bf16", "amx_bf16"), True, "mixed_bfloat16"),
        (("avx512_bf16", "amx_bf16"), False, "float32"),
    ],
)
def test_a_cpu_takes_bfloat16_for_convolutions_if_it_multiplies_it(features, convolutional, expected):
    chosen = precision.resolve("auto", net(convolutional), machine(*features))
    assert chosen.policy == expected
    assert chosen.reason


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((9, 0), "mixed_bfloat16"), ((8, 0), "mixed_bfloat16"), ((7, 5), "mixed_float16"), ((6, 1), "float32")],
)
def test_a_gpu_decides_by_its_compute_capability(monkeypatch, capability, expected):
    monkeypatch.setattr(environment, "compute_capability", lambda: capability)
    chosen = precision.resolve("auto", net(False), machine(accelerators=("Some GPU",)))
    assert chosen.policy == expected
    assert "Some GPU" in chosen.reason


def test_a_tpu_takes_bfloat16(monkeypatch):
    monkeypatch.setattr(environment, "compute_capability", lambda: None)
    assert precision.resolve("auto", net(False), machine(accelerators=("TPU v5",))).policy == "mixed_bfloat16"


def test_the_policy_is_put_back():
    before = keras.config.dtype_policy().name
    with precision.policy("mixed_float16"):
        assert keras.config.dtype_policy().name == "mixed_float16"
    assert keras.config.dtype_policy().name == before
    with pytest.raises(ValueError, match="nothing"), precision.policy("mixed_float16"):
        keras.layers.Dense(1, dtype="nothing")
    assert keras.config.dtype_policy().name == before

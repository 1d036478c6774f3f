import pytest

from highway_keras import from_preset
from pipelines.core.config import Config, ModelConfig
from pipelines.core.errors import UserError
from pipelines.core.optimizers import SGD, AdamW
from pipelines.training import memory

MEMORY = "MemTotal:       24000000 kB\nMemAvailable:   1000000 kB\n"


def config(**fields):
    return Config(recipe="wide", model=ModelConfig(preset="mnist_dense_10"), data="mnist", **fields)


@pytest.fixture(scope="module")
def net():
    return from_preset("mnist_dense_10", width=20, depth=10)


@pytest.mark.parametrize(
    ("optimizer", "numbers"), [(SGD(), 2), (AdamW(), 3), (SGD(ema=0.9), 3)], ids=["SGD", "AdamW", "averaged"]
)
def test_the_state_has_a_gradient_and_what_the_optimizer_keeps(net, optimizer, numbers):
    weights = 784 * 20 + 20 + 9 * (20 * 40 + 40) + 20 * 10 + 10
    assert memory.state_bytes(net, config(optimizer=optimizer)) == 4 * numbers * weights


@pytest.mark.parametrize(("precision", "size"), [("float32", 4), ("mixed_bfloat16", 2)])
def test_a_stack_keeps_three_arrays_for_each_layer(net, precision, size):
    # Input, flattened input, first layer, nine highway layers, logits.
    assert memory.activation_bytes(net, 7, precision) == 7 * size * (2 * 784 + 20 + 9 * 3 * 20 + 10)


def test_a_net_that_does_not_fit_is_refused_with_the_numbers(net, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1_000_000)
    memory.check(net, config(batch_size=1), "float32")
    message = (
        r"training wide takes at least 8\.6 GB of memory \(gradient and optimizer 0\.0, activations of a batch 8\.6\)"
    )
    with pytest.raises(UserError, match=message):
        memory.check(net, config(batch_size=1_000_000), "float32")
    monkeypatch.setattr(memory, "available", lambda: None)
    memory.check(net, config(batch_size=1_000_000), "float32")


@pytest.mark.parametrize(("preset", "depth"), [("mnist_dense_10", 400), ("mnist_dense_50_plain", 400)])
def test_a_net_that_is_too_wide_is_refused_before_it_is_built(monkeypatch, preset, depth):
    monkeypatch.setattr(memory, "available", lambda: 10**10)
    wide = config().model_copy(update={"model": ModelConfig(preset=preset, width=4000, depth=depth)})
    message = r"takes at least 76\.6 GB of memory for 400 layers of 4,000 units, and 10\.0 GB are available"
    with pytest.raises(UserError, match=message):
        memory.check_width(wide)
    memory.check_width(config())
    memory.check_width(wide.model_copy(update={"model": ModelConfig(preset="cifar10_19", width=4000)}))


def test_a_containers_limit_counts_without_the_files_that_it_can_drop(tmp_path):
    (tmp_path / "meminfo").write_text(MEMORY)
    found = lambda: memory.available(tmp_path / "meminfo", tmp_path)  # noqa: E731
    assert found() == 1_024_000_000
    (tmp_path / "memory.current").write_text("500\n")
    (tmp_path / "memory.stat").write_text("anon 400\ninactive_file 100\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert found() == 1_024_000_000
    (tmp_path / "memory.max").write_text("2000\n")
    assert found() == 1_600
    assert memory.available(tmp_path / "nothing", tmp_path) is None

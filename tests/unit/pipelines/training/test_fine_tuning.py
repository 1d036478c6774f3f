import dataclasses
from pathlib import Path

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayConnection
from pipelines.core.config import ModelConfig
from pipelines.core.errors import UserError
from pipelines.core.url import Url, location
from pipelines.training import net
from pipelines.training.fine_tuning import assign
from tests.toy_data import ToyData, toy_config

DATA = ToyData().describe("toy")


def made(seed=0, data=DATA, **model):
    config = toy_config(seed=seed, model=ModelConfig(**{"preset": "mnist_dense_50", "depth": 4, "width": 12, **model}))
    return net.build(config, data, "float32")


@pytest.fixture
def trained(tmp_path):
    """A net and its file."""
    model, path = made(seed=5), tmp_path / "trained.keras"
    model.save(path)
    return model, path


def equal(model, other):
    return [np.array_equal(a, b) for a, b in zip(model.get_weights(), other.get_weights(), strict=True)]


def test_a_net_starts_from_another(trained):
    source, path = trained
    model = made()
    assert not all(equal(model, source))
    assert assign(model, path) is None
    assert all(equal(model, source))


def test_a_net_starts_from_another_in_a_bucket(trained):
    source, path = trained
    bucket = Url("memory://fine-tuning")
    (bucket / "nets" / path.name).put(path)
    (bucket / "runs" / "x" / "config.json").write_bytes(b"{}")
    model = made()
    assert assign(model, bucket / "nets" / path.name) is None
    assert all(equal(model, source))
    other = made(depth=5)
    for place, message in (
        ("nets/trained.keras", "the net in memory://fine-tuning/nets/trained.keras has 3x12x12"),
        ("nets/none.keras", "there is no net in memory://fine-tuning/nets/none.keras"),
        ("runs/mnist_dense_50", "there is no net in memory://fine-tuning/runs/mnist_dense_50"),
        ("runs/x", "memory://fine-tuning/runs/x is not a run directory"),
    ):
        with pytest.raises(UserError, match=message):
            assign(other, location(f"{bucket}/{place}"))


def test_another_number_of_classes_gets_a_new_last_layer(trained):
    source, path = trained
    model = made(data=dataclasses.replace(DATA, labels=("a", "b", "c", "d", "e")))
    before = model.layers[-1].get_weights()
    assert assign(model, path) == model.layers[-1].name
    for layer, other in zip(model.layers[:-1], source.layers[:-1], strict=True):
        assert all(equal(layer, other))
    for value, other in zip(model.layers[-1].get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"preset": "mnist_dense_50_plain"}, "has other layers than"),
        ({"width": 13}, "weights of 64x13, 13, and the net in .*trained.keras has 64x12, 12"),
        ({"depth": 5}, "Only the last layer may differ"),
        ({"activation": "relu"}, r"computes something else .*activation='tanh'.*, not .*activation='relu'"),
    ],
)
def test_a_net_of_another_form_is_refused(trained, model, message):
    with pytest.raises(UserError, match=message):
        assign(made(**model), trained[1])


def nested(tmp_path=None, **changes):
    """Returns a net with layers inside layers, or its file."""
    options = {"dropout": 0.0, "epsilon": 0.001, "inner": "relu", "spare": 0.1, "seed": 0, "l2": 0.0, **changes}
    regularizer = keras.regularizers.L2(options["l2"])
    gate = {"dropout": options["dropout"], "seed": options["seed"]}
    block = keras.Sequential([
        keras.layers.Dropout(options["spare"]),
        Highway(activation=options["inner"], batch_normalization=True, **gate),
        keras.layers.Dense(6, kernel_regularizer=regularizer),
        keras.layers.BatchNormalization(epsilon=options["epsilon"]),
    ])  # fmt: skip
    model = keras.Sequential([keras.Input((6,)), HighwayConnection(block, name="outer"), keras.layers.Dense(2)])
    if tmp_path:
        model.save(tmp_path / "nested.keras")
    return model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dropout": 0.5}, r"its layer outer has block.config.layers.0.config.dropout=0.0, not .*dropout=0.5"),
        ({"epsilon": 0.1}, r"its layer outer has block.config.layers.2.config.epsilon=0.001, not .*epsilon=0.1"),
        ({"inner": "tanh"}, r"its layer outer has block.config.layers.0.config.activation='relu', not .*='tanh'"),
    ],
)
def test_every_option_that_matters_in_inference_is_compared_also_in_layers_inside(tmp_path, changes, message):
    nested(tmp_path)
    with pytest.raises(UserError, match=message):
        assign(nested(**changes), tmp_path / "nested.keras")


@pytest.mark.parametrize(
    ("option", "value"), [("normalization_epsilon", 0.1), ("data_format", "channels_first"), ("dropout", 0.5)]
)
def test_the_options_of_a_highway_layer_are_compared(tmp_path, option, value):
    def convolutional(**options):
        layer = ConvHighway(3, batch_normalization=True, name="gated", **options)
        return keras.Sequential([keras.Input((4, 4, 4)), layer, keras.layers.Flatten(), keras.layers.Dense(2)])

    convolutional().save(tmp_path / "net.keras")
    with pytest.raises(UserError, match=rf"its layer gated has {option}=.*, not {option}={value!r}"):
        assign(convolutional(**{option: value}), tmp_path / "net.keras")


def test_options_of_training_may_differ(tmp_path):
    trained = nested(tmp_path)
    model = nested(seed=7, spare=0.4, l2=0.1)
    assert assign(model, tmp_path / "nested.keras") is None
    for one, other in zip(model.weights, trained.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_missing_or_damaged_net_is_refused(trained, tmp_path):
    with pytest.raises(UserError, match=r"there is no net in .*nothing.keras"):
        assign(made(), tmp_path / "nothing.keras")
    with pytest.raises(UserError, match="is not a run directory"):
        assign(made(), tmp_path)
    trained[1].write_bytes(trained[1].read_bytes()[:999])
    with pytest.raises(UserError, match="is damaged"):
        assign(made(), trained[1])


def test_a_net_of_the_package_is_suggested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"there is no net in cifar10\. Did you mean cifar10_modern\? Expected"):
        assign(made(), Path("cifar10"))

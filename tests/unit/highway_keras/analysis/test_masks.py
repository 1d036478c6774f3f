"""Masked steps do not count in any statistic, and weights do."""

import keras
import numpy as np
import pytest
from keras import layers

from highway_keras import ConvHighway, Highway, HighwayStack, gates, mean_gates
from highway_keras.analysis import gate_statistics, gradient_norms, in_batches, lesion_layers, signatures
from highway_keras.callbacks import MeanGates
from tests.unit.highway_keras.analysis.small_nets import ZEROS
from tests.unit.highway_keras.backend import array, param_slow_on_jax, scramble, slow_on_jax

IDS = np.array([[1, 2, 3, 0, 0, 0], [4, 5, 0, 0, 0, 0], [6, 1, 2, 3, 4, 0]])
REAL = IDS > 0
X = np.random.default_rng(0).normal(size=(3, 6, 4)).astype("float32") * REAL[..., None]
LAYERS = {
    "single": lambda: Highway(name="h", **ZEROS),
    "stack": lambda: HighwayStack(2, name="h", **ZEROS),
    "conv": lambda: ConvHighway(3, name="h", **ZEROS),
}


def embedding():
    return [keras.Input((6,), dtype="int32"), layers.Embedding(7, 4, mask_zero=True, embeddings_initializer="zeros")]


def masking():
    return [keras.Input((6, 4)), layers.Masking()]


class Explicit(keras.Model):
    """Passes the mask explicitly."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, x):
        return self.layer(x, mask=keras.ops.any(x != 0, axis=-1))


def net(layer, first):
    if first == "explicit":
        model = Explicit(LAYERS[layer]())
        model(X)
        return scramble(model), X
    made, x = {"embedding": (embedding, IDS), "masking": (masking, X)}[first]
    return scramble(keras.Sequential([*made(), LAYERS[layer](), layers.Dense(3, kernel_initializer="zeros")])), x


@pytest.mark.parametrize(
    ("layer", "first"),
    [
        param_slow_on_jax("stack", "embedding"),
        ("conv", "masking"),
        ("single", "explicit"),
    ],
)
def test_padded_steps_count_in_no_statistic(layer, first):
    model, x = net(layer, first)
    every = gates(model, x)
    expected = {name: gate[REAL] for name, gate in every.items()}
    for name, mean in mean_gates(model, x, batch_size=2).items():
        assert mean == pytest.approx(expected[name].mean(), rel=1e-5)
        assert abs(mean - every[name].mean()) > 1e-4
    found = gate_statistics(model, in_batches(x, np.array([[0], [1], [1]]), 2), 2)
    for name, gate in expected.items():
        parts = {part: found.layout.split(getattr(found, part))[name] for part in ("mean", "means", "left", "slope")}
        np.testing.assert_allclose(parts["mean"], gate.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(parts["means"][1], every[name][1:][REAL[1:]].mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(parts["left"], (gate < 0.1).mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(parts["slope"], (gate * (1 - gate)).max(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(found.counts, [1, 2])
    np.testing.assert_array_equal(found.weights[:, 0], [3, 7])
    for per, axes in (("layer", (0, 1)), ("unit", 0)):
        routes = signatures(model, x, per=per)
        rows = [np.hstack([gate[i, REAL[i]].mean(axis=axes) for gate in every.values()]) for i in range(len(x))]
        np.testing.assert_allclose(routes, rows, rtol=1e-5)


@slow_on_jax
def test_each_epoch_logs_the_mean_of_real_steps():
    model, x = net("single", "embedding")
    model.compile("sgd", "mse")
    history = model.fit(x, np.zeros((3, 6, 3)), verbose=0, callbacks=[MeanGates(x)]).history
    assert history["gate/h"] == [pytest.approx(gates(model, x)["h"][REAL].mean(), rel=1e-5)]


@slow_on_jax
def test_an_example_without_real_steps_has_no_gates():
    model, x = net("single", "embedding")
    longer = np.concatenate([x, np.zeros_like(x[:1])])
    assert mean_gates(model, longer) == pytest.approx(mean_gates(model, x))
    np.testing.assert_array_equal(np.isnan(signatures(model, longer)[:, 0]), [False, False, False, True])
    statistics = [gate_statistics(model, (each, np.zeros(len(each)))) for each in (x, longer)]
    np.testing.assert_allclose(statistics[0].mean, statistics[1].mean, rtol=1e-6)
    assert np.isnan(mean_gates(model, np.zeros_like(x))["h"])
    with pytest.raises(ValueError, match="weight 0 or is masked"):
        gate_statistics(model, (np.zeros_like(x), np.zeros(3)))


class Batches(keras.utils.PyDataset):
    """Batches of the inputs alone."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, place):
        return self.batches[place]


@slow_on_jax
def test_all_steps_of_batches_of_different_lengths_weigh_the_same():
    several = ConvHighway(3, name="conv", **ZEROS), HighwayStack(2, name="stack", **ZEROS)
    model = scramble(keras.Sequential([keras.Input((None, 4)), *several]))
    parts = [X, X[:2, :2]]
    each = [gates(model, part) for part in parts]
    found = gate_statistics(model, [(part, np.arange(len(part)) % 2) for part in parts], 2)
    means = mean_gates(model, Batches(parts), batch_size=None)
    for name in each[0]:
        steps = [gate[name].reshape(-1, 4) for gate in each]
        every = np.concatenate(steps)
        assert abs(every.mean() - np.mean([part.mean() for part in steps])) > 1e-4
        assert means[name] == pytest.approx(every.mean(), rel=1e-5)
        of_units = {part: found.layout.split(getattr(found, part))[name] for part in ("mean", "means", "left")}
        np.testing.assert_allclose(of_units["mean"], every.mean(axis=0), rtol=1e-5)
        second = np.concatenate([gate[name][1:2].reshape(-1, 4) for gate in each])
        np.testing.assert_allclose(of_units["means"][1], second.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(of_units["left"], (every < 0.1).mean(axis=0), atol=1e-6)


@slow_on_jax
def test_scores_of_tokens_are_those_of_real_steps():
    model, x = net("single", "embedding")
    tokens = np.random.default_rng(1).integers(0, 3, IDS.shape)
    logits = model.predict_on_batch(x)
    chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    loss = -np.log(np.take_along_axis(chances, tokens[..., None], -1)[..., 0])
    assert lesion_layers(model, in_batches(x, tokens, 2)).intact["loss"] == pytest.approx(loss[REAL].mean(), rel=1e-5)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert model.evaluate(x, tokens, verbose=0) == pytest.approx(loss[REAL].mean(), rel=1e-5)
    # Step weights instead of a mask.
    plain = keras.Sequential([keras.Input((6, 4)), *model.layers[1:]])
    embedded = model.layers[0](x)
    weighted = lesion_layers(plain, [(array(embedded), tokens, REAL)])
    assert weighted.intact["loss"] == pytest.approx(loss[REAL].mean(), rel=1e-5)
    expected = (chances - np.eye(3)[tokens])[REAL].sum(axis=0) / REAL.sum()
    found = gradient_norms(model, x, tokens)[model.layers[-1].name]["bias"]
    assert found == pytest.approx(np.linalg.norm(expected), rel=1e-4)


@slow_on_jax
def test_sample_weights_equal_repeated_examples():
    model = scramble(keras.Sequential([keras.Input((4,)), Highway(name="h", **ZEROS), layers.Dense(2)]))
    x, y = np.random.default_rng(2).normal(size=(6, 4)).astype("float32"), np.array([0, 1, 1, 0, 1, 0])
    weights = np.array([1, 0, 2, 1, 0, 3])
    repeated = np.repeat(np.arange(6), weights)
    batches = [(x[:4], y[:4], weights[:4]), (x[4:], y[4:], weights[4:])]
    one, other = lesion_layers(model, batches), lesion_layers(model, (x[repeated], y[repeated]))
    assert one.cost() == pytest.approx(other.cost(), rel=1e-4)
    one, other = gate_statistics(model, batches, 2), gate_statistics(model, (x[repeated], y[repeated]), 2)
    for part in ("means", "mean", "right", "slope"):
        np.testing.assert_allclose(getattr(one, part), getattr(other, part), rtol=1e-5)
    np.testing.assert_array_equal(one.counts, [3, 3])
    assert other.weights is None
    with pytest.raises(ValueError, match="every example has weight 0"):
        lesion_layers(model, (x, y, np.zeros(6)))


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ((X[:2], np.zeros(3)), "same number of examples"),
        ([(X[:2], np.zeros(2), np.zeros(3))], "same number of examples"),
        ([X[:2]], "pairs"),
        ([(X[:2], np.zeros(2), np.array([1.0, -1.0]))], "finite and non-negative"),
        ((X[:0], np.zeros(0)), "no examples"),
    ],
    ids=["labels", "weights", "arrays", "negative", "empty"],
)
def test_invalid_batches_are_rejected(batches, message):
    model, _ = net("conv", "masking")
    for measure in (gate_statistics, lesion_layers):
        with pytest.raises(ValueError, match=message):
            measure(model, batches)

"""Measurements of nets for the different kinds of labels and inputs."""

import keras
import numpy as np

from highway_keras import ConvHighway, Highway, HighwayStack
from highway_keras.analysis import highway_layers, lesion_greedily, lesion_layers, signatures
from pipelines.analysis import prune, summary
from pipelines.analysis.examples import OpenedNet, Part
from pipelines.analysis.measuring import example, scores_of


def test_a_layer_that_carries_every_rare_label_is_worth_something():
    """Without it, the net predicts no label, which is right for 99.95% of them."""
    labels = np.zeros((20, 100), "float32")
    labels[0, 0] = 1
    layer = Highway(kernel_initializer=keras.initializers.Identity(20), transform_bias=5.0)
    logits = keras.layers.Dense(100, kernel_initializer="identity", bias_initializer=keras.initializers.Constant(-10))
    model = keras.Sequential([keras.Input((100,)), layer, logits])
    part = Part("toy 1.0.0", "train", 20, 20, [(labels, labels)], (), multi_label=True)
    lesions = lesion_layers(model, part.batches, scores_of(part))
    assert all(lesions.harmful(limit, score).all() for score, limit in summary.tolerances(lesions).items())
    scores = lesion_greedily(model, part.batches, scores_of(part)).scores
    intact, closed = ({name: values[place] for name, values in scores.items()} for place in (0, 1))
    assert prune._is_useless(intact, closed, tolerance=0.0)


def test_an_example_has_a_value_for_each_channel_in_both_data_formats():
    layers = [
        ConvHighway(3, data_format="channels_last"),
        keras.layers.Permute((3, 1, 2)),
        ConvHighway(3, data_format="channels_first"),
        keras.layers.Flatten(),
        HighwayStack(2),
    ]
    model = keras.Sequential([keras.Input((4, 5, 2)), *layers])
    images = np.random.default_rng(0).normal(size=(2, 4, 5, 2)).astype("float32")
    layout, _ = highway_layers(model, images)
    net = OpenedNet(model, layout, *[None] * 4)
    gates, outputs = example(net, Part("toy 1.0.0", "train", 2, 2, [(images, images)], ()))
    np.testing.assert_allclose(gates, signatures(model, images[:1], per="unit")[0], rtol=1e-5)
    assert outputs.shape == (layout.gates,)
    maps = keras.Model(model.inputs[0], [layers[0].output, layers[2].output])(images[:1])
    means = [np.mean(maps[0], axis=(0, 1, 2)), np.mean(maps[1], axis=(0, 2, 3))]
    np.testing.assert_allclose(outputs[:4], np.concatenate(means), rtol=1e-4)

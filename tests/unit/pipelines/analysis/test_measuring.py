"""Measurements of nets for the different kinds of labels and inputs."""

import keras
import numpy as np

from highway_keras import Highway
from highway_keras.analysis import lesion_greedily, lesion_layers
from pipelines.analysis import prune, summary
from pipelines.analysis.examples import Part
from pipelines.analysis.measuring import scores_of


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

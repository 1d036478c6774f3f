"""The nets of the study: as many parameters, and epochs by the time of a step."""

from collections import Counter

import pytest

import highway_keras
from pipelines import recipes
from pipelines.core.config import Config
from pipelines.studies.papers.conv_gate.nets import HELD_OUT, NETS, arm, equal_time


def test_the_nets_have_equally_many_parameters():
    counts = {}
    for name, net in NETS.items():
        model = arm(net, net.rate).config.model
        counts[name] = highway_keras.from_preset(model.preset, width=model.width, match=model.match).count_params()
    assert set(counts) == {"highway", "residual", "plain"}
    assert min(counts.values()) == pytest.approx(max(counts.values()), rel=0.01)


def test_only_the_net_and_the_length_of_the_recipe_are_changed():
    recipe = recipes.get("cifar10_modern").config.model_dump()
    for net in NETS.values():
        made = arm(net, 0.2, epochs=23)
        # Values were copied without validation.
        assert Config.model_validate(made.config.model_dump()) == made.config
        fields = made.config.model_dump()
        changed = {"recipe", "model"}
        assert fields["optimizer"] == {**recipe["optimizer"], "learning_rate": 0.2}
        assert (fields["epochs"], fields["validation"], made.counts.train) == (23, HELD_OUT, 45_000)
        same = fields.keys() - changed - {"optimizer", "epochs", "validation"}
        assert {field: fields[field] for field in same} == {field: recipe[field] for field in same}


def test_the_slowest_net_has_twenty_epochs_and_the_others_more():
    assert equal_time({"highway": 6.0, "plain": 5.0, "residual": 5.9}) == {"highway": 20, "plain": 24, "residual": 20}


def test_all_nets_have_the_layers_that_the_page_names():
    kinds = {}
    for name, net in NETS.items():
        model = arm(net, net.rate).config.model
        built = highway_keras.from_preset(model.preset, width=model.width, match=model.match)
        found = [type(layer).__name__ for layer in built.layers if layer.weights]
        kinds[name] = Counter(kind for kind in found if "Normalization" not in kind)
        assert kinds[name].total() == 11
    assert kinds["highway"] == {"Conv2D": 4, "ConvHighway": 6, "Dense": 1}

"""Docstrings of the library's public names describe every argument and the result, and give an example."""

import inspect
import re
from collections.abc import Iterator

import pytest

from highway_keras import analysis, callbacks, initializers, layers, models, surgery, weights
from highway_keras.analysis import plots

# Results of functions, whose fields have docstrings of their own.
RESULTS = {"Elimination", "GateStatistics", "Jacobian", "Layout", "Lesion", "Lesions"}
# Layers that refer to `Highway` for the arguments that they share with it.
VARIANTS = {"ConvHighway", "HighwayStack"}


def public():
    """Returns the functions and classes that the library's packages and modules export, by name."""
    return {
        name: value
        for module in (analysis, callbacks, initializers, layers, models, plots, surgery, weights)
        for name, value in vars(module).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__.startswith(module.__name__)
        and not name.startswith("_")
    }


def sections(docstring):
    """Returns the text of each section of a docstring, such as "Args"."""
    parts = re.split(r"^(\w[\w ]*):\n(?=    )", docstring, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", sorted(public().keys() - RESULTS))
def test_docstrings_of_public_names_are_complete(name):
    value = public()[name]
    described = sections(inspect.getdoc(value))
    documented = set(re.findall(r"^    \*{0,2}(\w+): ", described.get("Args", ""), re.MULTILINE))
    accepted = set(inspect.signature(value).parameters)
    assert documented <= accepted
    assert accepted - documented <= ({*inspect.signature(layers.Highway).parameters} if name in VARIANTS else set())
    assert "Example" in described
    if inspect.isfunction(value):
        nothing = inspect.signature(value).return_annotation in (None, Iterator[None])
        assert nothing is not bool({"Returns", "Yields"} & described.keys())

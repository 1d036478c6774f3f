from types import SimpleNamespace

import pytest


@pytest.fixture
def quick_bayesian(monkeypatch):
    """Uses the best of KerasTuner's fifty starting points: refining them all takes a hundred times as long."""
    monkeypatch.setattr(
        "keras_tuner.src.tuners.bayesian.scipy",
        SimpleNamespace(optimize=SimpleNamespace(minimize=lambda score, x0, **_: SimpleNamespace(fun=score(x0), x=x0))),
    )

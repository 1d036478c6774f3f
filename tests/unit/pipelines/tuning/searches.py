"""Searches with fictitious scores."""

from dataclasses import replace

import numpy as np

from .plans import toy_state, toy_trial


def hyperband_state(count, score=lambda values, epochs: 0.5 + 0.1 * epochs):
    """Settings trained for one epoch, every third of which a further trial continues to three."""
    random = np.random.default_rng(0)
    first = [
        toy_trial(
            number, learning_rate=float(10 ** random.uniform(-3, 0)), transform_bias=float(random.uniform(-10, -1))
        )
        for number in range(count)
    ]
    short = [replace(trial, epochs=1, score=score(trial.values, 1)) for trial in first]
    longer = [
        replace(
            trial, number=f"{count + place}", epochs=3, before=1, earlier=trial.number, score=score(trial.values, 3)
        )
        for place, trial in enumerate(first[::3])
    ]
    return toy_state(*short, *longer)


def searched_state(count, score=lambda values: -abs(values["transform_bias"] + 3), plan=None, failed=()):
    random = np.random.default_rng(0)
    trials = []
    for number in range(count):
        values = {
            "learning_rate": float(10 ** random.uniform(-3, 0)),
            "momentum": float(random.uniform(0, 0.99)),
            "decay": float(random.uniform(0.8, 1)),
            "transform_bias": float(random.uniform(-10, -1)),
            "activation": str(random.choice(["relu", "tanh"])),
        }
        if plan:
            values["net"] = plan.nets[number % len(plan.nets)].name
        if number in failed:
            trials.append(toy_trial(number, status="failed", reason="dead gates", **values))
        else:
            trials.append(toy_trial(number, score(values), **values))
    return toy_state(*trials)

"""Columns of small tables."""

import numpy as np

COUNT = 60


def numbers(count=COUNT, seed=0):
    return np.random.default_rng(seed).normal(size=count).round(3).tolist()


def with_x(**columns):
    return {"x": numbers(len(next(iter(columns.values())))), **columns}

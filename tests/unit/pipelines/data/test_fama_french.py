import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from arch.data import frenchdata

from pipelines.core.config import Augment, Preprocess
from pipelines.core.errors import UserError
from pipelines.data import french_factors, preprocess
from pipelines.data.batches import evaluation, training
from pipelines.data.catalog import prepare
from pipelines.data.french_factors import DECADES, EXAMPLES, MONTHS, fold, shares
from pipelines.data.samples import draw_samples
from pipelines.data.sources import describe, load

SPLITS = {"train": 775, "validation": 166, "test": 167}


@pytest.fixture(scope="module")
def stored(factors):
    """All three splits in file order."""
    builder = tfds.builder("fama_french", data_dir=factors)
    parts = [tfds.as_numpy(builder.as_dataset(split=name, batch_size=-1)) for name in SPLITS]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


@pytest.fixture(scope="module")
def shipped():
    """The rows of the package's file, parsed independently."""
    with gzip.open(Path(frenchdata.__file__).parent / "frenchdata.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


def test_the_splits_follow_each_other_in_time():
    parts = shares()
    assert {name: len(rows) for name, rows in parts.items()} == SPLITS
    assert [row for rows in parts.values() for row in rows] == list(range(1108))


@pytest.mark.parametrize("decade", DECADES)
def test_a_fold_forecasts_its_decade_from_the_months_before_it(decade):
    parts = fold(decade)
    rows = [row for part in parts.values() for row in part]
    assert rows == list(range(rows[-1] + 1))
    asked = MONTHS[1:]
    assert {int(month) // 1000 for month in asked[parts["test"]]} == {int(decade[:3])}
    assert asked[parts["test"].start - 1] == MONTHS[parts["test"].start] == 100 * DECADES[decade] - 88
    assert len(parts["validation"]) == (len(rows) - len(parts["test"])) // 5


def test_the_decades_follow_each_other_to_the_last_month():
    tests = [row for decade in DECADES for row in fold(decade)["test"]]
    assert tests == list(range(161, EXAMPLES))
    assert MONTHS[[161, 162, -1]].tolist() == [193912, 194001, 201811]


@pytest.mark.parametrize("size", ["", "_size"])
def test_a_fold_is_stored_as_it_is_cut(size, shipped, tmp_path):
    prepare(f"fama_french/1950s{size}", tmp_path)
    returns = [float(row["Mkt-RF"]) for row in shipped[1:]]
    targets = [abs(value) for value in returns] if size else returns
    for name, rows in fold("1950s").items():
        examples = load(f"fama_french/1950s{size}", name, tmp_path)
        np.testing.assert_allclose(examples.labels[:, 0], targets[rows.start : rows.stop], rtol=1e-6)
        market = [float(row["Mkt-RF"]) for row in shipped[rows.start : rows.stop]]
        np.testing.assert_allclose(examples.images[:, 0], market, rtol=1e-6)


def test_other_months_than_expected_are_refused(monkeypatch):
    table = frenchdata.load()
    monkeypatch.setattr(frenchdata, "load", lambda: table.iloc[1:])
    with pytest.raises(UserError, match=r"1108 months from 192608 to 201811\. Expected 1109 from 192607 to 201811"):
        french_factors.read()


def test_every_month_is_there_once_and_in_order(stored):
    calendar = [100 * year + month for year in range(1926, 2019) for month in range(1, 13)]
    # From July 1926 to October 2018: November, the last month of the file, is only a target.
    assert stored["month"].tolist() == calendar[6:-2]
    assert stored["month"][[775, 941]].tolist() == [199102, 200412]


def test_the_features_are_the_shipped_factors_and_the_target_is_the_next_months_market(stored, shipped):
    assert [int(row["Date"]) for row in shipped[:-1]] == stored["month"].tolist()
    factors = [[float(row[name]) for name in ("Mkt-RF", "SMB", "HML", "RF")] for row in shipped[:-1]]
    np.testing.assert_allclose(stored["features"], factors, rtol=1e-6)
    np.testing.assert_allclose(stored["target"][:, 0], [float(row["Mkt-RF"]) for row in shipped[1:]], rtol=1e-6)


def test_no_split_sees_the_targets_of_a_later_one(factors, stored):
    start = 0
    for name, count in SPLITS.items():
        examples = load("fama_french", name, factors)
        rows = slice(start, start + count)
        np.testing.assert_array_equal(examples.images, stored["features"][rows])
        np.testing.assert_array_equal(examples.labels, stored["target"][rows])
        start += count
        if start < len(stored["month"]):
            # Its last target is the first month of the next split.
            assert examples.labels[-1, 0] == stored["features"][start, 0]


def test_fama_french_is_described_as_a_regression(factors):
    info = describe("fama_french", factors, validation=50)  # Ignored: there is a validation split.
    assert (info.version, info.shape, info.labels, info.counts) == ("1.0.0", (4,), (), SPLITS)


def test_preprocessing_takes_its_mean_from_the_vectors_it_is_given(factors, tmp_path):
    train, test = (load("fama_french", name, factors).images for name in ("train", "test"))
    expected = (test.astype(float) - train.astype(float).mean(axis=0)) / 5
    for mean in ("pixel", "channel"):
        preprocess.save(preprocess.fit(Preprocess(scale=0.2, mean=mean), train), tmp_path / "fitted.npz")
        fitted = preprocess.load(tmp_path / "fitted.npz")
        np.testing.assert_allclose(preprocess.apply(fitted, tf.constant(test)), expected, rtol=1e-4, atol=1e-5)


def test_batches_keep_targets_as_they_are(factors):
    examples = load("fama_french", "train", factors)
    fitted = preprocess.fit(Preprocess(scale=1.0), examples.images)
    whole = list(evaluation(examples, fitted, batch_size=100, classes=0).as_numpy_iterator())
    np.testing.assert_array_equal(np.concatenate([targets for _, targets in whole]), examples.labels)
    steps = training(examples, fitted, augment=Augment(), batch_size=155, seed=3, steps=5, classes=0)
    pairs = [np.concatenate(part) for part in zip(*steps.as_numpy_iterator(), strict=True)]
    drawn, expected = (np.concatenate(part, axis=1) for part in (pairs, (examples.images, examples.labels)))
    assert sorted(drawn.tolist()) == sorted(expected.tolist())
    assert drawn.tolist() != expected.tolist()


def test_vectors_cannot_be_drawn(factors, tmp_path):
    with pytest.raises(UserError, match=r"only images can be drawn\. 'fama_french' holds vectors of 4 numbers"):
        draw_samples("fama_french", None, factors, tmp_path / "samples.png")

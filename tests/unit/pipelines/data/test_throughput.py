import pytest
import tensorflow as tf

from pipelines.data.throughput import throughput


def batches(count):
    return tf.data.Dataset.range(count).map(lambda _: (tf.zeros([5, 2, 2, 1]), tf.zeros([5, 3])))


def test_images_are_counted_over_the_time(monkeypatch):
    clock = iter(float(tick) for tick in range(100))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    # The clock is read once before the measurement, once for its end, before every batch, and once after: in the
    # 14 s between, 11 batches of 5 images were taken.
    assert throughput(batches(1000), seconds=12) == pytest.approx(11 * 5 / 14)


def test_too_few_batches_are_an_error():
    with pytest.raises(ValueError, match="ran out"):
        throughput(batches(3))

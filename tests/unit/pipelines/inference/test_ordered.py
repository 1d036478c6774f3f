import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.inference.job import ordered


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(3) as pool:
        yield pool


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 30))
def test_results_are_in_order(pool, items, ahead):
    def work(item):
        time.sleep(item / 2000)
        return -item

    assert list(ordered(pool, work, iter(items), ahead)) == [-item for item in items]


def test_only_the_given_number_of_items_is_taken_ahead(pool):
    taken, given_back, most = 0, 0, 0

    def items():
        nonlocal taken, most
        for item in range(50):
            taken += 1
            most = max(most, taken - given_back)
            yield item

    for _ in ordered(pool, str, items(), 4):
        given_back += 1
    assert most == 4


def test_items_are_processed_at_the_same_time(pool):
    # Passes only if three items are processed at the same time.
    meeting = threading.Barrier(3, timeout=20)
    assert len(list(ordered(pool, lambda _: meeting.wait(), range(9), 3))) == 9


def test_an_error_reaches_the_caller(pool):
    with pytest.raises(ZeroDivisionError):
        list(ordered(pool, lambda item: 1 // item, [1, 0, 1], 2))

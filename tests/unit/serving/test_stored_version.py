"""The limit on the size of small objects; `test_bucket.py` and others test listings and downloads."""

import pytest

from serving.stored_version import Prefix


@pytest.mark.parametrize(("size", "ranges"), [(0, []), (7, [("a", 0, 7)]), (8, [("a", 0, 8)]), (10**9, [("a", 0, 8)])])
def test_no_more_of_a_small_object_is_read_than_shows_that_it_is_too_large(size, ranges):
    asked = []

    def read_range(*given):
        asked.append(given)
        return bytes(given[2])

    assert len(Prefix("s3://bucket/digits/1", {"a": size}, read_range).read("a", 7)) == min(size, 8)
    assert asked == ranges

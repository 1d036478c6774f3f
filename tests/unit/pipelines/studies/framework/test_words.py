from pipelines.studies.framework.words import listed, numbered, ranged


def test_items_in_a_row():
    assert [listed(range(count)) for count in (1, 2, 3)] == ["0", "0 and 1", "0, 1 and 2"]


def test_least_and_greatest_once_if_they_are_told_alike():
    assert ranged([0.952, 0.9, 0.91], ".1%") == "90.0% to 95.2%"
    assert ranged([0.9001, 0.9002]) == "0.900"


def test_numbers_are_told_by_first_and_last_only_where_none_is_missing():
    assert numbered(range(36)) == "0 to 35"
    assert [numbered(range(count)) for count in (1, 3, 4)] == ["0", "0, 1, 2", "0 to 3"]
    assert numbered([0, 1, 2, 4, 5]) == "0, 1, 2, 4, 5"

from pipelines.studies.words import listed, ranged


def test_items_in_a_row():
    assert [listed(range(count)) for count in (1, 2, 3)] == ["0", "0 and 1", "0, 1 and 2"]


def test_least_and_greatest_once_if_they_are_told_alike():
    assert ranged([0.952, 0.9, 0.91], ".1%") == "90.0% to 95.2%"
    assert ranged([0.9001, 0.9002]) == "0.900"

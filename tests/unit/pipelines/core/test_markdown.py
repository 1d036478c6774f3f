from pipelines.core.markdown import table


def test_a_cell_cannot_break_its_table():
    assert table(("a", "b"), [("1|2", "3")]) == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |"

from pipelines.core.markdown import WIDTH, table, wrapped


def test_a_cell_cannot_break_its_table():
    assert table(("a", "b"), [("1|2", "3")]) == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |"


def test_paragraphs_and_items_are_filled():
    text = (
        f"# {'long ' * 40}\n\n{'word ' * 50}\n\n- {'one ' * 40}\n- two\n\n| {'cell ' * 40} |\n\n![{'x' * 130}](y.png)"
    )
    lines = wrapped(text).splitlines()
    assert [line[:3] for line in lines if len(line) > WIDTH] == ["# l", "| c", "![" + "x"]
    assert [line[:5] for line in lines if "one" in line or "two" in line] == ["- one", "  one", "- two"]
    assert " ".join(wrapped(text).split()) == " ".join(text.split())
    assert wrapped(wrapped(text)) == wrapped(text)


def test_no_line_of_a_paragraph_starts_a_list_or_a_heading():
    for filler in range(WIDTH - 20, WIDTH + 5):
        text = f"{'a' * filler} is more than 2. - 5 and # 1 + 2 > 1 or 3) x"
        assert not [
            line for line in wrapped(text).splitlines() if line.startswith(("2.", "- ", "# ", "+ ", "> ", "3)"))
        ]

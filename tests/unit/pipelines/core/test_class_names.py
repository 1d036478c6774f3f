import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core import class_names as module
from pipelines.core.class_names import class_names, text_width


def test_short_names_stay():
    assert class_names(["cat", "dog", "naïve 7"]) == ["cat", "dog", "naïve 7"]


def test_long_names_are_cut_in_the_middle():
    assert class_names(["a very long name of a class", "cat"]) == ["a very lo… a class", "cat"]


def test_names_that_would_be_equal_are_numbered():
    first, second, third = (f"the same beginning {middle} and the same end" for middle in ("1", "2", "3"))
    assert class_names([first, "other", second, third]) == ["class 1", "other", "class 3", "class 4"]


def test_a_formula_is_text():
    assert class_names(["$x$"]) == [r"\$x\$"]


def test_characters_without_a_font_are_replaced(monkeypatch):
    monkeypatch.setattr(module, "families", lambda: [module.OWN])
    assert class_names(["cat", "猫", "dog"]) == ["cat", "class 2", "dog"]


@pytest.mark.parametrize(("text", "width"), [("cat", 3), ("猫", 2), ("", 0), ("\uff43at", 4)])
def test_wide_characters_take_two_columns(text, width):
    assert text_width(text) == width


@given(st.lists(st.text(min_size=1, max_size=60), max_size=8, unique=True))
def test_names_fit_and_differ(labels):
    names = class_names(labels)
    assert len({*names}) == len(labels)
    assert all(text_width(name.replace(r"\$", "$")) <= max(module.MOST, len("class 8")) for name in names)

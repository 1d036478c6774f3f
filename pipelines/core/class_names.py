"""Shortens the names of classes for figures, and finds fonts for their scripts."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache

from matplotlib.font_manager import findfont, fontManager, get_font

# Fonts with Chinese, Japanese and Korean characters, which Matplotlib's own font lacks. The first one that is installed
# is used.
CJK = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Source Han Sans",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "IPAGothic",
    "Hiragino Sans",
    "PingFang SC",
    "Microsoft YaHei",
    "Malgun Gothic",
)
OWN = "DejaVu Sans"
# Columns of text; a wide character takes two.
MOST = 18


@cache
def families() -> list[str]:
    """Returns the fonts of all figures: Matplotlib's own, and one for characters that it lacks, if installed."""
    installed = {font.name for font in fontManager.ttflist}
    return [OWN, *[name for name in CJK if name in installed][:1]]


def class_names(labels: Sequence[str], most: int = MOST) -> list[str]:
    """Returns names of classes that fit into figures.

    Args:
        labels: all classes, in their order.
        most: columns of text; longer names are cut in the middle.

    Returns:
        One name per class, without mathematical notation. Names with characters that no font has, and those that are
        equal once they are cut, become "class 3", counted from 1.

    Example:
        class_names(["cat", "a very long name of a class"])  # ["cat", "a very lo… a class"]
    """
    known: set[int] = set().union(*(get_font(findfont(name)).get_charmap() for name in families()))
    cut = [_cut(label, most) for label in labels]
    counts = Counter(cut)
    return [
        # Two dollar signs would start a formula.
        label.replace("$", r"\$") if counts[label] == 1 and known.issuperset(map(ord, label)) else f"class {number}"
        for number, label in enumerate(cut, start=1)
    ]


def text_width(text: str) -> int:
    """Returns the number of columns that a text takes in a terminal, which is about its width in a figure."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _cut(label: str, most: int) -> str:
    if text_width(label) <= most:
        return label
    start, end = label, label
    while text_width(start) > most // 2:
        start = start[:-1]
    while text_width(end) > most - 1 - text_width(start):
        end = end[1:]
    return f"{start}\N{HORIZONTAL ELLIPSIS}{end}"

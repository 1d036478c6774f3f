"""Tables and refilled paragraphs in Markdown."""

import re
import textwrap
from collections.abc import Sequence

WIDTH = 120
"""The maximum length of a line of prose."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a table in Markdown.

    Example:
        table(("depth", "accuracy"), [("5", "90.30%")])
    """
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def wrapped(text: str) -> str:
    """Refills paragraphs and list items to lines of at most `WIDTH` characters.

    Headings, tables and images keep their lines.

    Example:
        wrapped("word " * 50)  # three lines
    """
    return "\n\n".join(map(_wrapped, text.split("\n\n")))


def _wrapped(block: str) -> str:
    if block.lstrip().startswith(("#", "|", "![")):
        return block
    return "\n".join(map(_filled, re.split(r"\n(?=- )", block)))


def _filled(text: str) -> str:
    # A number or sign at the start of a line would begin a list, a heading or a quotation.
    glued = re.sub(r"\s+(?=(?:[-+*>#|]+|\d+[.)])(?:\s|$))", "\0", text.strip())
    indent = "  " if text.startswith("- ") else ""
    lines = textwrap.fill(glued, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
    return lines.replace("\0", " ")

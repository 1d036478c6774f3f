"""Pages in Markdown."""

import re


def unwrapped(page):
    """Joins the lines of each paragraph and list item of a page."""
    return re.sub(r"(?<!\n)\n(?!\n|\||- |$)(?:  )?", " ", page)

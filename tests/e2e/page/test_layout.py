"""Nothing on the page is cut off or overflows, on a phone, a laptop and a large screen, in both colour schemes."""

from itertools import product

import pytest
from PIL import Image

from .conftest import LONG

SIZES = ((375, 812), (1024, 768), (1920, 1080))
# What is shown by scrolling: code, and the table of several files. A list shows as much of its text as it has room for.
SCROLLED = "pre, #scroll, select"
BROKEN = f"""
    const found = [], name = (one) => `${{one.tagName.toLowerCase()}}#${{one.id}}.${{one.className}}`;
    if (document.documentElement.scrollWidth > innerWidth) found.push("page");
    for (const one of document.body.querySelectorAll("*")) {{
        if (!one.checkVisibility() || one.closest("select") || one.parentElement.closest("{SCROLLED}")) continue;
        const {{left, right, bottom, width}} = one.getBoundingClientRect();
        if (!width) continue;
        if (left < -0.5 || right > innerWidth + 0.5) found.push(`${{name(one)}} leaves the window`);
        const card = one.parentElement.closest("button, .card, header, #message, #refused");
        const frame = card?.getBoundingClientRect();
        if (frame && (left < frame.left - 0.5 || right > frame.right + 0.5 || bottom > frame.bottom + 0.5)) {{
            found.push(`${{name(one)}} leaves ${{name(card)}}`);
        }}
        if (one.matches("{SCROLLED}")) continue;
        // A line may be a pixel higher or wider than its box.
        if (one.clientWidth && one.scrollWidth > one.clientWidth + 1) found.push(`${{name(one)}} is too narrow`);
        if (getComputedStyle(one).overflowY !== "visible" && one.scrollHeight > one.clientHeight + 1) {{
            found.push(`${{name(one)}} is too low`);
        }}
    }}
    return found"""


def broken(page):
    """Returns what is cut off or overflows, for each size and colour scheme."""
    found = {}
    for size, dark in product(SIZES, (False, True)):
        page.emulate(size, dark=dark)
        if problems := page.driver.execute_script(BROKEN):
            found[size, dark] = problems
    return found


def open_all(page):
    page.driver.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")


def test_two_models_and_a_table_of_files_fit(page, image_files):
    assert broken(page) == {}
    names = [image_files / f"IMG_20260101_120000_photograph_{number}.png" for number in (1, 2)]
    for path in names:
        path.write_bytes((image_files / "three.png").read_bytes())
    page.get("file").send_keys("\n".join(map(str, [*names, image_files / "note.svg"])))
    page.until("return document.querySelector('#batch caption').textContent.startsWith('3 images')")
    page.choose("against", f"{LONG}, version 1")
    page.until("return document.querySelector('#other .verdict b')?.textContent === '3'")
    open_all(page)
    assert broken(page) == {}
    # No two file names look alike.
    link = "const one = document.querySelector('#batch .link'); return [one.scrollWidth, one.clientWidth]"
    page.emulate(SIZES[0])
    shown, wide = page.driver.execute_script(link)
    assert shown <= wide
    assert [line for line in page.console() if "400" not in line] == []


def test_a_long_class_and_several_digits_fit(page, image_files):
    page.draw([[(x + dx, y) for x, y in ((0, 0.4), (0, 0.6))] for dx in (0.1, 0.3, 0.5, 0.7, 0.9)])
    page.until("return document.querySelector('#answer .verdict b').textContent.length > 3")
    assert broken(page) == {}
    page.choose("model", "photographs")
    Image.new("RGB", (300, 300), (255, 190, 200)).save(image_files / "pink.png")
    page.add_file("paste", image_files / "pink.png", "image/png")
    assert page.verdict() == "a colour with a very long name"
    open_all(page)
    assert broken(page) == {}


@pytest.mark.parametrize("model", ["sales", "tags"])
def test_a_form_and_its_answer_fit(page, model):
    page.choose("model", model)
    page.driver.find_elements("css selector", "#rows button")[0].click()
    page.verdict()
    open_all(page)
    assert broken(page) == {}


def test_what_is_wrong_fits(page, endpoint):
    page.open(f"{endpoint.url}/?model=damaged")
    page.until("return document.getElementById('message').textContent !== ''")
    open_all(page)
    assert broken(page) == {}

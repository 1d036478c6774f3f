"""Contrast of controls and focus rings with what is around them, measured in screenshots (WCAG 1.4.11 and 2.4.13)."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from tests.e2e.browser import SEVEN

ENOUGH = 3
# Everything is in the window, so that nothing scrolls.
WINDOW = (1100, 1900)
# One of each kind that the Tab key reaches, or that is only used with the mouse.
KINDS = """
    const kinds = new Map();
    for (const one of document.querySelectorAll("a, button, select, input, summary, canvas, pre")) {
        const {tagName, type, tabIndex, parentElement} = one;
        if (one.disabled || tabIndex < 0 || !one.checkVisibility({visibilityProperty: true})) continue;
        const kind = [tagName.toLowerCase(), type, parentElement.id].filter(Boolean).join(" ");
        if (!kinds.has(kind)) kinds.set(kind, one);
    }
    return [...kinds]"""


def luminance(image):
    share = np.asarray(image, "float64") / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    return (np.maximum(one, other) + 0.05) / (np.minimum(one, other) + 0.05)


def shot(page, box, margin):
    """Returns the luminance of a part of the window, with a margin."""
    x, y = (round(box[side]) - margin for side in "xy")
    width, height = (round(box[side]) + 2 * margin for side in ("width", "height"))
    clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
    taken = page.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})
    return luminance(Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB"))


def edges(kind, seen, margin):
    """Returns the contrast of each edge of a control with the pixel before it."""
    middle_row, middle_column = (side // 2 for side in seen.shape)
    lines = [seen[middle_row], seen[middle_row, ::-1]]
    # The track of a slider is thinner than the slider.
    lines += [] if "range" in kind else [seen[:, middle_column], seen[::-1, middle_column]]
    return [contrast(line[: margin + 2], line[0]).max() for line in lines]


def measure(page, found):
    """Adds each kind of control: the lowest contrast of its edges, and the area of its focus ring.

    The area is a share of that of a line of two pixels around the control, and counts pixels that change enough.
    """
    page.driver.execute_script("document.activeElement.blur()")
    # Rings are shown once a key has been pressed; this one moves nothing.
    page.keys("\ue012")
    for kind, control in page.driver.execute_script(KINDS):
        if kind in found:
            continue
        page.driver.execute_script("document.activeElement.blur()")
        box, margin = control.rect, 6
        before = shot(page, box, margin)
        page.driver.execute_script("arguments[0].focus()", control)
        changed = contrast(shot(page, box, margin), before) >= ENOUGH
        around = 4 * (round(box["width"]) + round(box["height"])) - 16
        # Text has no edges.
        has_edges = not kind.startswith(("a", "summary", "pre"))
        found[kind] = (min(edges(kind, before, margin)) if has_edges else None, changed.sum() / around)


@pytest.mark.parametrize("dark", [False, True])
def test_controls_and_their_focus_have_enough_contrast(window, endpoint, image_files, dark):
    window.emulate(WINDOW, dark=dark)
    window.open(endpoint.url)
    window.draw(SEVEN)
    window.verdict()
    window.driver.execute_script("document.getElementById('code').open = true")
    found = {}
    measure(window, found)
    window.choose("model", "photographs")
    window.add_file("paste", image_files / "red.jpg", "image/jpeg")
    window.verdict()
    measure(window, found)
    window.choose("model", "houses")
    measure(window, found)
    # As if the endpoint required a key.
    window.driver.execute_script("document.getElementById('key').hidden = false")
    measure(window, found)
    assert {kind.partition(" ")[0] for kind in found} == {"a", "button", "select", "input", "summary", "canvas", "pre"}
    assert {kind.split()[1] for kind in found if kind.startswith("input")} == {"password", "number", "radio", "range"}
    assert {kind: edge for kind, (edge, _) in found.items() if edge is not None and edge < ENOUGH} == {}
    assert {kind: ring for kind, (_, ring) in found.items() if ring < 1} == {}

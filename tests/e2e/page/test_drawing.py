"""Strokes on the page, by mouse, keyboard and finger."""

import pytest
from selenium.webdriver.common.action_chains import ActionChains

from tests.e2e.browser import PHONE, SEVEN, TALL, THREE, assert_clean


def test_the_page_starts_empty(page):
    assert "Draw a digit" in page.get("invitation").text
    assert page.part(".verdict").text == "Draw a digit to see a prediction"
    assert len(page.driver.find_elements("css selector", "#answer .bars li")) == 10
    assert page.get("message").text == ""


def test_a_digit_drawn_by_mouse_is_classified(page):
    page.draw(SEVEN)
    assert page.verdict() == "7"
    found = page.shares()
    assert [name for name, _ in found] == list("0123456789")
    assert abs(sum(share for _, share in found) - 100) < 1
    assert max(found, key=lambda one: one[1])[0] == "7"
    width, height, pixels = page.seen()
    # White on black, as MNIST is.
    assert (width, height, pixels[0], max(pixels)) == (28, 28, 0, 255)
    # The net looked at the strokes.
    ((left, top, right, bottom),) = page.marks()
    assert [left, top, right, bottom] == pytest.approx([0.24, 0.21, 0.76, 0.84], abs=0.08)
    gates = page.driver.find_elements("css selector", "#answer .strip i")
    assert len(gates) == 3
    assert all(0 < gate.rect["height"] <= page.part(".strip").rect["height"] for gate in gates)
    assert "version 1" in page.part(".source").text
    page.get("clear").click()
    page.until("return document.querySelector('#answer').classList.contains('empty')")
    page.draw(THREE)
    assert page.verdict() == "3"


def test_the_prediction_follows_the_strokes(page):
    page.draw([SEVEN[0][:2]])
    first = page.verdict()
    page.draw([SEVEN[0][1:]])
    page.until("return document.querySelector('#answer .verdict b').textContent === '7'")
    assert first != "7"


def placed(strokes, left, top):
    """Draws a digit at a part of the canvas, at half its size."""
    return [[(left + x / 2, top + y / 2) for x, y in stroke] for stroke in strokes]


def test_several_digits_are_read_and_none_is_reported(page):
    page.draw([[(0.5, 0.5), (0.5, 0.51)]])
    assert page.verdict() == "No digit"
    assert page.part(".notice").text == "There is no digit here, or it is too small."
    assert (page.marks(), page.shares()) == ([], [])
    assert not page.part(".inside").is_displayed()
    page.get("clear").click()
    page.draw(placed(SEVEN, 0.0, 0.25))
    assert page.verdict() == "7"
    assert not page.part(".notice").is_displayed()
    page.draw(placed(THREE, 0.5, 0.25))
    page.until("return document.querySelector('#answer .verdict b').textContent === '73'")
    assert page.part(".notice").text == "There are 2 digits here; from left to right: 73."
    assert page.part(".verdict span").text == ""
    assert [name for name, share in page.shares() if share > 50] == ["7", "3"]
    # Each is marked where it is.
    first, second = page.marks()
    for left, top, right, bottom in (first, second):
        assert 0.25 < top < 0.4
        assert 0.6 < bottom < 0.75
        assert 0.1 < right - left < 0.4
    assert first[2] < 0.5 < second[0]


def test_a_digit_drawn_by_keyboard_is_classified(page):
    page.driver.execute_script("document.activeElement.blur()")
    tab, space = "\ue004", " "
    # Three lists, the link to the API and the refused versions come first.
    for _ in range(6):
        page.keys(tab)
    assert page.driver.execute_script("return document.activeElement.id") == "canvas"
    down, up, left, right = "\ue015", "\ue013", "\ue012", "\ue014"
    page.keys(*[left] * 10, *[up] * 12)
    assert page.driver.execute_script("return document.getElementById('pen').hidden") is False
    hold(page, space, [right] * 20 + [down] * 30)
    assert page.verdict() == "7"
    page.keys("\ue00c")
    page.until("return document.querySelector('#answer').classList.contains('empty')")


def hold(page, key, others):
    action = ActionChains(page.driver, duration=5).key_down(key)
    for other in others:
        action.send_keys(other)
    action.key_up(key).perform()


def ink(page):
    """Returns the number of pixels drawn."""
    script = """const canvas = document.getElementById("canvas");
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return data.filter((value, place) => place % 4 == 3 && value).length"""
    return page.driver.execute_script(script)


def test_strokes_are_undone_one_by_one(page):
    def undo():
        ActionChains(page.driver, duration=5).key_down("\ue009").send_keys("z").key_up("\ue009").perform()

    page.draw([SEVEN[0][:2]])
    before = ink(page)
    page.draw([SEVEN[0][1:]])
    assert ink(page) > before
    undo()
    assert ink(page) == before
    page.get("clear").click()
    assert ink(page) == 0
    page.get("undo").click()
    assert ink(page) == before
    # Only where text is written, these keys undo that.
    page.driver.find_element("css selector", "#code summary").click()
    page.driver.find_element("css selector", "#code [value=python]").click()
    undo()
    page.until("return document.querySelector('#answer').classList.contains('empty')")
    assert not page.get("undo").is_enabled()


def test_a_digit_drawn_by_touch_on_a_phone_is_classified(endpoint, window):
    window.emulate(PHONE, touch=True, scale=2)
    window.open(endpoint.url)
    window.touch(THREE)
    assert window.verdict() == "3"
    assert window.driver.execute_script("return document.documentElement.scrollWidth") == PHONE[0]
    assert window.driver.execute_script("return scrollY") == 0
    # Nothing overflows the card.
    out = """const right = (one) => one.getBoundingClientRect().right, card = document.getElementById("answer");
        return [...card.querySelectorAll("*")].some((one) => right(one) > right(card))"""
    assert not window.driver.execute_script(out)
    assert_clean(window, endpoint.url)


def test_dark_and_light_schemes_change_the_strokes_and_not_the_prediction(endpoint, window):
    window.emulate(TALL, dark=True)
    window.open(endpoint.url)
    window.draw(SEVEN)
    # Light strokes on a dark ground are read as the same digit.
    assert window.verdict() == "7"
    ground = window.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in ground[4:-1].split(",")) < 40
    window.emulate(TALL)
    window.draw([[(0.3, 0.9), (0.31, 0.9)]])
    script = "return [...document.getElementById('canvas').getContext('2d').getImageData(280, 140, 1, 1).data]"
    # Earlier strokes have changed to dark, too.
    assert max(window.driver.execute_script(script)[:3]) < 60
    assert_clean(window, endpoint.url)

"""Controls of the page: their contrast, their order, and code to copy."""

import base64
import json
import re
import shutil
import subprocess

import pytest
from PIL import Image

from tests.e2e.browser import SEVEN, TALL


@pytest.mark.parametrize("dark", [False, True])
def test_the_edges_of_controls_have_enough_contrast(window, endpoint, dark):
    window.emulate(TALL, dark=dark)
    window.open(endpoint.url)
    script = """
        const light = (colour) => {
            const [red, green, blue] = colour.match(/[\\d.]+/g).map((part) => part / 255)
                .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
        };
        const grounds = [getComputedStyle(document.body), getComputedStyle(document.getElementById("image"))]
            .map((one) => light(one.backgroundColor));
        const controls = [...document.querySelectorAll("button, select, #canvas")];
        return Math.min(...controls.filter((one) => one.checkVisibility())
            .flatMap((one) => grounds.map((ground) => [ground, light(getComputedStyle(one).borderTopColor)].sort()))
            .map(([low, high]) => (Math.max(low, high) + 0.05) / (Math.min(low, high) + 0.05)))"""
    assert window.driver.execute_script(script) >= 3


@pytest.mark.parametrize(("model", "draws"), [("digits", True), ("padded", False)])
def test_the_tab_key_reaches_every_control_in_order(page, endpoint, model, draws):
    page.open(f"{endpoint.url}/?model={model}")
    page.until("return document.querySelectorAll('#samples img').length === arguments[0]", 10 if draws else 0)
    page.driver.execute_script("document.activeElement.blur()")
    script = """const {id, tagName, parentElement} = document.activeElement;
        return id || parentElement.id || tagName.toLowerCase()"""
    reached = []
    while "body" not in reached:
        page.keys("\ue004")
        reached.append(page.driver.execute_script(script))
        assert len(reached) < 50
    lists = ["model", "version", "against"] if draws else ["model", "version"]
    images = ["canvas", "pick", "camera", *["samples"] * 10] if draws else ["pick", "camera"]
    assert reached[:-1] == [*lists, "a", "refused", *images, "code"]


def test_the_code_to_copy_runs(page, digit, tmp_path, monkeypatch, capsys):
    page.draw(SEVEN)
    assert page.verdict() == "7"
    picture = page.driver.execute_script("return document.getElementById('canvas').toDataURL()")
    (tmp_path / "drawing.png").write_bytes(base64.b64decode(picture.partition(",")[2]))
    page.driver.find_element("css selector", "#code summary").click()

    def copied(language):
        page.driver.find_element("css selector", f"#code [value={language}]").click()
        page.get("copy").click()
        page.until("return document.getElementById('copied').textContent !== ''")
        return page.get("snippet").text

    def printed():
        exec(compile(copied("python"), "snippet", "exec"), {})
        return re.findall("label='(.)'", capsys.readouterr().out)

    def answered():
        said = subprocess.run(["sh", "-c", copied("curl")], capture_output=True, text=True, check=True).stdout
        return [one["top"][0]["label"] for one in json.loads(said)["predictions"][0]["segments"]]

    monkeypatch.chdir(tmp_path)
    assert printed() == ["7"]
    # A sample is fetched from the endpoint.
    page.driver.find_element("css selector", "#samples [title='5']").click()
    page.until("return document.querySelector('#answer .verdict b').textContent === '5'")
    assert printed() == ["5"]
    assert not (tmp_path / "digits-5.png").exists()
    # Each of several digits has its answer, and the name of a file may be anything.
    several = Image.new("L", (640, 320), 255)
    for left in (10, 330):
        several.paste(digit, (left, 10))
    several.save(tmp_path / 'two, "threes"; it\'s.png')
    page.get("file").send_keys(str(tmp_path / 'two, "threes"; it\'s.png'))
    page.until("return document.querySelector('#answer .verdict b').textContent === '33'")
    assert printed() == ["3", "3"]
    if shutil.which("curl"):
        assert answered() == ["3", "3"]
        page.driver.find_element("css selector", "#samples [title='5']").click()
        page.until("return document.querySelector('#answer .verdict b').textContent === '5'")
        assert answered() == ["5"]
        assert (tmp_path / "digits-5.png").exists()


def test_controls_that_go_away_leave_the_focus_near_them(page):
    focus = "return document.activeElement.id"
    page.draw(SEVEN)
    page.get("clear").click()
    assert page.driver.execute_script(focus) == "canvas"
    page.get("undo").click()
    page.get("undo").click()
    assert page.driver.execute_script(focus) == "canvas"
    page.get("camera").click()
    page.until("return !document.getElementById('shutter').hidden")
    page.keys("\ue00c")
    page.until("return document.getElementById('shutter').hidden")
    assert page.driver.execute_script(focus) == "camera"

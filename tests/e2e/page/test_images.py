"""Images on the page: files, samples, the camera, and those of the visit."""

import shutil

import pytest
from PIL import Image

from tests.e2e.browser import SEVEN


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
    page.choose("model", "photographs")
    page.until("return document.getElementById('invitation').textContent === 'Drop or paste an image here'")
    page.add_file("paste", image_files / "red.jpg", "image/jpeg")
    assert page.verdict() == "red"
    found = page.shares()
    assert len(found) == 10
    assert [share for _, share in found] == sorted((share for _, share in found), reverse=True)
    assert page.seen()[:2] == (32, 32)
    # The map of gates, of one layer here.
    assert (page.part(".which").text, page.part(".range").text) == ("light", "33.2% open everywhere")
    # The net saw the middle 300 of 400 columns.
    (mark,) = page.marks()
    assert mark == pytest.approx([0.125, 0.125, 0.875, 0.875], abs=0.01)
    page.add_file("paste", image_files / "blue.jpg", "image/jpeg")
    page.until("return document.querySelector('#answer .verdict b').textContent === 'blue'")
    # Inputs that are not square are drawn in their own shape.
    fit = "return getComputedStyle(document.querySelector(arguments[0])).objectFit"
    assert {page.driver.execute_script(fit, f"#answer .{part}") for part in ("seen", "open")} == {"contain"}
    assert page.get("keys").text.startswith("The image is cropped to its centre")
    # Strokes on photographs are ignored, and the area is not in the tab order.
    page.draw(SEVEN)
    assert page.verdict() == "blue"
    assert page.get("canvas").get_attribute("tabindex") is None


def test_a_frame_is_not_marked(page, image_files):
    page.choose("model", "recent")
    page.add_file("paste", image_files / "framed.png", "image/png")
    assert page.verdict() == "scarlet"
    # 400 x 300 pixels in a frame of 40.
    (mark,) = page.marks()
    assert mark == pytest.approx([90 / 480, 90 / 480, 390 / 480, 390 / 480], abs=0.01)


def test_a_model_that_pads_uses_the_whole_image(page, image_files):
    page.choose("model", "padded")
    page.add_file("paste", image_files / "red.jpg", "image/jpeg")
    page.verdict()
    assert page.get("keys").text.startswith("The whole image is used, with grey bars")
    assert page.marks() == []


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


# Delays the next prediction until `goOn` is called.
WAITING = """
    const original = fetch;
    window.fetch = async (path, ...others) => {
        if (path.startsWith("predict")) {
            window.fetch = original;
            await new Promise((done) => { window.goOn = done; });
        }
        return original(path, ...others);
    };"""


def test_an_answer_that_is_late_does_not_look_like_that_of_the_image_before(page):
    page.until("return document.querySelectorAll('#samples img').length === 10")
    page.driver.find_element("css selector", "#samples [title='7']").click()
    assert page.verdict() == "7"
    page.driver.execute_script(WAITING)
    page.driver.find_element("css selector", "#samples [title='5']").click()
    page.until("return document.querySelector('#answer').classList.contains('old')")
    assert page.part(".source").text == "This was the answer before."
    page.driver.execute_script("window.goOn()")
    assert page.verdict() == "5"
    assert "old" not in page.get("answer").get_attribute("class")


def test_an_image_of_this_visit_returns_to_its_model(page, image_files):
    page.draw(SEVEN)
    assert page.verdict() == "7"
    page.choose("model", "photographs")
    page.add_file("paste", image_files / "red.jpg", "image/jpeg")
    page.until("return document.querySelector('#answer .verdict b').textContent === 'red'")
    page.driver.find_elements("css selector", "#past button")[1].click()
    page.until("return document.querySelector('#answer .verdict b').textContent === '7'")
    assert page.get("model").get_attribute("value") == "digits"


def test_an_answer_for_an_image_that_is_no_longer_shown_is_not_kept(page):
    page.until("return document.querySelectorAll('#samples img').length === 10")
    page.driver.execute_script(WAITING)
    page.driver.find_element("css selector", "#samples [title='7']").click()
    page.until("return Boolean(window.goOn)")
    image = "return document.getElementById('canvas').toDataURL()"
    seven = page.driver.execute_script(image)
    page.driver.find_element("css selector", "#samples [title='5']").click()
    page.until(f"{image} !== arguments[0]", seven)
    page.driver.execute_script("window.goOn()")
    page.until("return document.querySelector('#answer .verdict b').textContent === '5'")
    assert [one.text for one in page.driver.find_elements("css selector", "#past button")] == ["5"]


# Delays the reading of the next file until `goOn` is called, and collects the bitmaps.
SLOW = """
    const [read, create] = [Blob.prototype.arrayBuffer, createImageBitmap];
    Blob.prototype.arrayBuffer = async function () {
        Blob.prototype.arrayBuffer = read;
        await new Promise((done) => { window.goOn = done; });
        return read.call(this);
    };
    window.bitmaps = [];
    window.createImageBitmap = async (...values) => {
        let made = null;
        try {
            return made = await create(...values);
        } finally {
            window.bitmaps.push(made);
        }
    };"""


@pytest.mark.parametrize(("name", "kind"), [("three.png", "image/png"), ("note.svg", "image/svg+xml")])
def test_the_image_that_was_chosen_last_is_shown(page, image_files, name, kind):
    page.until("return document.querySelectorAll('#samples img').length === 10")
    page.driver.execute_script(SLOW)
    page.driver.find_element("css selector", "#samples [title='7']").click()
    page.add_file("drop", image_files / name, kind)
    message = "return document.getElementById('message').textContent"
    if name == "note.svg":
        page.until(f"{message}.includes('SVG format')")
    else:
        assert page.verdict() == "3"
    page.driver.execute_script("window.goOn()")
    page.until("return window.bitmaps.length === 2")
    page.until("return document.querySelector('#answer[aria-busy=false]') !== null")
    if name == "note.svg":
        assert "SVG format" in page.driver.execute_script(message)
        assert [line for line in page.console() if "400" not in line] == []
    else:
        assert page.verdict() == "3"
    # Undo returns to the empty drawing: the other image was never shown.
    page.get("undo").click()
    page.until("return document.querySelector('#answer').classList.contains('empty')")


def test_the_table_has_the_files_that_were_chosen_last(page, image_files):
    page.driver.execute_script(SLOW)
    files = [str(image_files / name) for name in ("three.png", "turned.jpg")]
    page.get("file").send_keys("\n".join(files))
    page.get("file").send_keys("\n".join(reversed(files)))
    page.until("return window.bitmaps.length >= 1")
    page.driver.execute_script("window.goOn()")
    page.until("return window.bitmaps.length === 2")
    page.until("return document.querySelector('#batch caption').textContent.startsWith('2 images')")
    page.verdict()
    assert page.driver.find_element("css selector", "#batch tbody th").text == "turned.jpg"


def test_large_images_are_kept_as_small_as_they_are_shown(page, image_files):
    page.choose("model", "photographs")
    page.driver.execute_script(f"{SLOW} Blob.prototype.arrayBuffer = read;")
    with Image.open(image_files / "red.jpg") as red:
        red.resize((4000, 3000)).save(image_files / "large.jpg")
    page.add_file("paste", image_files / "large.jpg", "image/jpeg")
    assert page.verdict() == "red"
    sizes = page.driver.execute_script("return window.bitmaps.map(({width, height}) => [width, height])")
    # The one of the whole image is closed.
    assert sizes == [[0, 0], [560, 420]]
    (mark,) = page.marks()
    assert mark == pytest.approx([0.125, 0.125, 0.875, 0.875], abs=0.01)


def test_several_files_make_a_table(page, image_files):
    page.get("file").send_keys("\n".join(str(image_files / name) for name in ("three.png", "note.svg", "turned.jpg")))
    page.until("return document.querySelector('#batch caption').textContent.startsWith('3 images')")
    rows = [row.text for row in page.driver.find_elements("css selector", "#batch tbody tr")]
    assert [row.split()[:2] for row in (rows[0], rows[2])] == [["three.png", "3"], ["turned.jpg", "3"]]
    assert "note.svg is" in rows[1]
    assert page.verdict() == "3"
    assert [line for line in page.console() if "400" not in line] == []


def test_a_closed_table_sends_nothing_more(page, image_files):
    script = """
        const original = fetch;
        window.sent = {image: 0, table: 0};
        window.fetch = async (path, ...others) => {
            if (!path.startsWith("predict")) return original(path, ...others);
            // Only the image asks for the input of the net.
            window.sent[path.includes("seen=") ? "image" : "table"] += 1;
            return new Response("{}", {status: 503, headers: {"Retry-After": "0.1"}});
        };"""
    page.driver.execute_script(script)
    page.get("file").send_keys(f"{image_files / 'three.png'}\n{image_files / 'turned.jpg'}")
    page.until("return window.sent.table >= 4")
    page.get("forget").click()

    def sent_after_more_retries():
        retries = page.driver.execute_script("return window.sent.image + 4")
        page.until("return window.sent.image >= arguments[0]", retries)
        return page.driver.execute_script("return window.sent.table")

    # A request may have begun before the table was closed.
    sent = sent_after_more_retries()
    assert sent_after_more_retries() == sent


def test_a_file_is_read_once(page, image_files):
    file = image_files / "three.png"
    page.get("file").send_keys(str(file))
    assert page.verdict() == "3"
    shutil.copy(image_files / "blue.jpg", file)
    page.choose("against", "other, version 1")
    page.until("return document.querySelector('#other .verdict b')?.textContent === '3'")
    assert page.verdict() == "3"
    # The table has files of its own, which another kind of model does not take.
    page.get("file").send_keys(f"{file}\n{image_files / 'turned.jpg'}")
    page.until("return document.querySelector('#batch caption').textContent.startsWith('2 images')")
    page.choose("model", "photographs")
    page.until("return document.getElementById('batch').hidden")


def test_a_photo_is_taken_with_the_camera(page):
    page.get("camera").click()
    page.until("return document.getElementById('video').videoWidth > 0 && !document.getElementById('shutter').hidden")
    page.get("shoot").click()
    assert page.verdict() == "3"
    assert not page.get("video").is_displayed()
    # The control with the focus is gone.
    assert page.driver.execute_script("return document.activeElement.id") == "camera"


def test_the_camera_does_not_cover_another_image(page):
    page.until("return document.querySelectorAll('#samples img').length === 10")
    page.get("camera").click()
    page.until("return !document.getElementById('shutter').hidden")
    page.driver.find_element("css selector", "#samples [title='7']").click()
    assert page.verdict() == "7"
    assert not page.get("video").is_displayed()
    assert page.driver.execute_script("return document.activeElement.title") == "7"


def test_one_camera_is_on_and_none_without_images(page):
    script = """
        const devices = navigator.mediaDevices, original = devices.getUserMedia.bind(devices);
        window.streams = [];
        devices.getUserMedia = async (wanted) => {
            const stream = await original(wanted);
            window.streams.push(stream);
            return stream;
        };
        for (let click = 0; click < 2; click += 1) document.getElementById("camera").click();"""
    page.driver.execute_script(script)
    page.until("return window.streams.length === 2 && !document.getElementById('shutter').hidden")
    on = "return window.streams.filter((one) => one.getTracks().some((track) => track.readyState === 'live')).length"
    assert page.driver.execute_script(on) == 1
    page.choose("model", "houses")
    page.until(f"{on} === 0")
    assert page.driver.execute_script("return document.getElementById('video').hidden")

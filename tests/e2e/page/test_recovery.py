"""The page over an endpoint that is busy, restarts, hangs, or changes its key."""

import time

import pytest

from tests.e2e.browser import SEVEN
from tests.e2e.page.stand_in import facts, model, stand_in
from tests.endpoint import eventually

SAID = "return document.getElementById('message').textContent"
ANSWERED = "return document.querySelector('#answer:not(.empty):not(.old) .source')?.textContent.startsWith('Answered')"


@pytest.fixture
def served():
    """The stand-in."""
    with stand_in() as started:
        yield started


def says(page, text):
    page.until(f"{SAID}.includes(arguments[0])", text)


def silent(page):
    page.until(f"{SAID} === ''")


def choose_sample(page, number=0):
    page.until("return document.querySelectorAll('#samples img[src]').length > arguments[0]", number)
    page.driver.execute_script("document.querySelectorAll('#samples button')[arguments[0]].click()", number)


def enter_key(page, key):
    page.get("secret").send_keys(key + "\ue007")


def test_the_list_is_asked_for_by_one_timer_while_models_are_loaded(window, served):
    served.loading = True
    window.open(served.url)
    time.sleep(8)
    started = served.asked("/models")[0].seconds
    counts = [sum(start <= one.seconds - started < start + 2 for one in served.requests) for start in (0, 6)]
    # Two lists every half second, no matter for how long; a busy machine asks less often.
    assert max(counts) <= 11
    before = len(served.requests)
    eventually(lambda: len(served.requests) > before)


def test_a_list_that_takes_long_is_not_asked_for_again_meanwhile(window, served):
    window.open(served.url)
    served.delayed, served.delay = "/models", 7
    time.sleep(12)
    before = served.asked("/models")
    assert max(sum(one.path == path for one in before) for path in ("/models", "/v1/models")) <= 2


def test_a_prediction_that_notices_another_key_is_sent_again_with_the_new_one(window, served):
    served.key = "one"
    window.open(served.url)
    enter_key(window, "one")
    choose_sample(window)
    window.until(ANSWERED)
    served.key = "two"
    window.draw(SEVEN)
    window.until("return !document.getElementById('key').hidden")
    says(window, "This key is not accepted.")
    enter_key(window, "two")
    silent(window)
    window.until(ANSWERED)


def test_files_of_a_table_wait_for_the_new_key(window, served, image_files):
    served.key = "one"
    window.open(served.url)
    enter_key(window, "one")
    window.until("return document.querySelectorAll('#samples img[src]').length > 0")
    served.key = "two"
    window.get("file").send_keys(f"{image_files / 'red.jpg'}\n{image_files / 'blue.jpg'}")
    window.until("return !document.getElementById('key').hidden")
    enter_key(window, "two")
    window.until("return document.querySelectorAll('#batch td.number').length === 2")
    silent(window)


@pytest.mark.parametrize("key", ["schlüssel", "ключ"])
def test_a_key_may_have_any_letters(window, served, key):
    served.key = key
    window.open(served.url)
    enter_key(window, key)
    window.until("return document.getElementById('key').hidden")
    silent(window)


def test_a_key_that_cannot_be_sent_is_called_that(window, served):
    served.key = "one"
    window.open(served.url)
    window.driver.execute_script("document.getElementById('secret').value = 'o\\u0000ne'")
    window.get("key").find_element("tag name", "button").click()
    says(window, "cannot be sent")
    assert window.get("key").is_displayed()
    enter_key(window, "one")
    window.until("return document.getElementById('key').hidden")
    silent(window)


def test_samples_that_the_endpoint_is_too_busy_for_come_later(window, served):
    served.refuse = lambda one: (503, "busy.") if "/samples/" in one.path else None
    window.open(served.url)
    window.until("return document.querySelectorAll('#samples button').length === 1")
    time.sleep(0.5)
    served.refuse = lambda _: None
    choose_sample(window)
    window.until(ANSWERED)


def test_a_restart_keeps_the_image_and_the_model(window, served):
    shown, other = model("cifar", (1,), input={"shape": [32, 32, 3], "pictures": "natural"}), model("mnist", (1,))
    served.models = [shown, other]
    window.open(served.url)
    choose_sample(window)
    window.until(ANSWERED)
    # The other model is loaded first.
    served.models, served.loading = [other], True
    says(window, "The models are being loaded.")
    assert window.driver.current_url == f"{served.url}/?model=cifar"
    served.models, served.loading = [shown, other], False
    silent(window)
    window.until(ANSWERED)
    assert window.get("undo").is_enabled()
    assert window.driver.current_url == f"{served.url}/?model=cifar"


def test_a_model_that_was_shown_and_is_removed_is_named_while_another_is_compared(window, served):
    served.models = [model("mine", (1,)), model("other", (1,))]
    window.open(f"{served.url}/?model=mine&against=other/1")
    choose_sample(window)
    window.until(ANSWERED)
    served.models = [model("other", (1,))]
    says(window, "There is no model “mine” here.")
    undo = "new KeyboardEvent('keydown', { key: 'z', ctrlKey: true, bubbles: true })"
    window.driver.execute_script(f"document.body.dispatchEvent({undo})")
    time.sleep(0.5)
    assert window.console() == []


def test_a_busy_answer_holds_back_only_the_image_that_got_it(window, served):
    served.pause = 60
    served.refuse = lambda one: (503, "64 large files are waiting.") if "/predict/" in one.path else None
    served.models = [model(facts=[facts(2, samples=["first", "second"]), facts(1)])]
    window.open(served.url)
    choose_sample(window)
    says(window, "64 large files are waiting.")
    served.refuse = lambda _: None
    before = len(served.asked("/predict/"))
    choose_sample(window, 1)
    silent(window)
    window.until(ANSWERED)
    # The first image is still held back.
    asked = len(served.asked("/predict/"))
    assert asked == before + 1
    window.get("undo").click()
    says(window, "64 large files are waiting.")
    # Another version may answer for it.
    window.choose("version", "1")
    silent(window)
    window.until(ANSWERED)
    assert len(served.asked("/predict/")) == asked + 1


def test_one_of_two_versions_answers_although_the_other_fails(window, served):
    served.refuse = lambda one: (500, "it computed NaN.") if one.query.get("version") == "1" else None
    window.open(f"{served.url}/?model=digits&against=digits/1")
    choose_sample(window)
    says(window, "digits, version 1: it computed NaN.")
    window.until(ANSWERED)
    assert window.get("other").find_element("css selector", ".verdict b").text == "No answer"
    # The first may fail as well.
    window.choose("version", "1")
    says(window, "it is the chosen version itself")
    window.choose("against", "digits, version 2")
    window.until("return document.querySelector('#other:not(.empty):not(.old) .source')?.textContent !== ''")
    says(window, "digits, version 1: it computed NaN.")
    served.refuse = lambda _: None
    window.draw(SEVEN)
    silent(window)
    window.until(ANSWERED)


def test_a_file_that_cannot_be_read_leaves_the_answer_of_the_image_that_is_shown(window, served):
    window.open(served.url)
    choose_sample(window)
    window.until(ANSWERED)
    window.driver.execute_script("""
        const file = new File(["x"], "gone.png");
        file.arrayBuffer = () => Promise.reject(new Error("gone"));
        const event = new Event("drop");
        event.dataTransfer = { files: [file] };
        document.dispatchEvent(event);""")
    says(window, "gone.png cannot be read.")
    assert window.driver.execute_script(ANSWERED)


def test_the_page_says_that_it_still_waits(window, served):
    served.delay = 12
    window.open(served.url)
    choose_sample(window)
    says(window, "Still waiting")
    silent(window)
    window.until(ANSWERED)


def test_the_form_is_that_of_the_chosen_version(window, served):
    def columns(*names):
        return [{"name": name, "categories": None} for name in names]

    def table(*names):
        return {"shape": [len(names)], "pictures": None, "columns": columns(*names), "target": "price"}

    old = facts(1, rows=[{"rooms": 3, "age": 50}], input=table("rooms", "age"), classes=["low", "high"])
    new = facts(2, rows=[{"rooms": 4, "floors": 2}])
    served.models = [model("houses", input=table("rooms", "floors"), classes=(), facts=[new, old])]
    window.open(f"{served.url}/?model=houses&version=1")
    names = "return [...document.querySelectorAll('#fields [name]')].map((one) => one.name).join()"
    window.until(f"{names} === 'rooms,age'")
    window.driver.find_element("css selector", "#rows button").click()
    window.until(ANSWERED)
    (asked,) = served.asked("/predict/")
    assert (asked.query["top"], asked.body) == ("2", b'{"rows":[{"rooms":3,"age":50}]}')
    # Versions for other columns cannot be compared.
    assert not window.get("against").is_enabled()
    window.choose("version", "newest")
    window.until(f"{names} === 'rooms,floors'")

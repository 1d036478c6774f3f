"""The choice of models and versions on the page, which come and go."""

import json
import shutil
import urllib.request

import pytest

from tests.e2e.browser import SEVEN, assert_clean
from tests.endpoint import Endpoint, add_bad_version, add_version


def test_two_versions_answer_for_the_same_image(page, endpoint):
    page.draw(SEVEN)
    page.choose("against", "other, version 1")
    page.until("return document.querySelector('#other .verdict b')?.textContent === '7'")
    titles = [one.text for one in page.driver.find_elements("css selector", ".title")]
    assert titles == ["digits, version 1", "other, version 1"]
    assert page.driver.current_url == f"{endpoint.url}/?model=digits&against=other%2F1"


def test_an_address_leads_to_the_same_choice(page, endpoint):
    address = f"{endpoint.url}/?model=other&version=1&against=digits%2F1"
    page.open(address)
    page.until("return document.getElementById('against').value === 'digits/1'")
    titles = [one.text for one in page.driver.find_elements("css selector", ".title")]
    assert titles == ["other, version 1", "digits, version 1"]
    assert page.driver.current_url == address
    page.choose("against", "nothing")
    page.choose("version", "newest")
    assert page.driver.current_url == f"{endpoint.url}/?model=other"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("model=absent", "There is no model “absent” here."),
        ("model=damaged", "Model “damaged” is here, but none of its versions can be served."),
        ("model=digits&version=7", "Model “digits” does not serve version 7."),
    ],
)
def test_a_missing_model_and_a_damaged_one_are_told_apart(page, endpoint, query, said):
    page.open(f"{endpoint.url}/?{query}")
    page.until("return document.getElementById('message').textContent !== ''")
    assert said in page.get("message").text
    assert ("model.onnx is damaged" in page.get("message").text) == ("damaged" in query)
    assert not page.get("canvas").is_displayed()
    page.choose("model", "photographs")
    page.until("return document.getElementById('message').textContent === ''")
    assert page.driver.current_url == f"{endpoint.url}/?model=photographs"


def test_a_refused_version_with_a_label_is_named(models, tmp_path, window):
    digits = shutil.copytree(models / "digits", tmp_path / "models" / "digits")
    add_bad_version(digits, 2)
    (digits / "release.json").write_text(json.dumps({"versions": [1, 2], "labels": {"stable": 2}}))
    said = "return document.getElementById('message').textContent.startsWith(arguments[0])"
    with Endpoint(tmp_path / "models", tmp_path / "log") as endpoint:
        for query in ("label=stable", "version=2"):
            window.open(f"{endpoint.url}/?model=digits&{query}")
            window.until(said, "Model “digits” is here, but version 2 cannot be served. Version 2 was refused: ")
        window.open(f"{endpoint.url}/?model=digits&label=canary")
        window.until(said, "Model “digits” has no label “canary”.")


@pytest.mark.slow
def test_a_new_version_appears_and_can_be_chosen(page, models):
    page.draw(SEVEN)
    assert page.verdict() == "7"
    add_version(models / "digits", 2)
    try:
        page.until("return document.querySelector('#answer .source').textContent.includes('version 2')")
        # The answer may come before the page has asked for the versions again.
        page.until("return document.getElementById('version').options[1].textContent === '2'")
        assert [option.text for option in page.get("version").find_elements("tag name", "option")] == ["newest", "2"]
        page.choose("version", "2")
        assert page.verdict() == "7"
    finally:
        shutil.rmtree(models / "digits" / "2")
        page.until("return document.getElementById('version').options[1].textContent === '1'")


@pytest.mark.slow
def test_a_version_that_javascript_would_round_can_be_chosen(page, endpoint, models):
    number = 2**53 + 1
    add_version(models / "digits", number)
    try:
        page.until(f"return document.getElementById('version').options[1].textContent === '{number}'")
        page.choose("version", str(number))
        page.draw(SEVEN)
        assert page.verdict() == "7"
        assert f"version {number} " in page.get("answer").find_element("css selector", ".source").text
        assert page.driver.current_url == f"{endpoint.url}/?model=digits&version={number}"
    finally:
        shutil.rmtree(models / "digits" / str(number))
        page.open(endpoint.url)
        page.until("return document.getElementById('version').options[1].textContent === '1'")


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


def test_the_page_asks_for_the_key(models, tmp_path, window):
    with Endpoint(models, tmp_path / "log", HIGHWAY_API_KEY="s3cret") as endpoint:
        window.open(endpoint.url)
        # A link sends no key.
        with urllib.request.urlopen(f"{endpoint.url}/openapi.json") as answer:
            assert answer.status == 200
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
    count = """
        const original = fetch;
        window.sent = 0;
        window.fetch = (path, ...others) => {
            window.sent += path.startsWith("predict");
            return original(path, ...others);
        }"""
    window.driver.execute_script(count)
    window.draw([[(0.3, 0.9), (0.7, 0.9)]], steps=30)
    window.until("return document.getElementById('message').textContent.includes('does not answer')")
    # A stroke of 30 points, and a request every two seconds.
    assert window.driver.execute_script("return window.sent") < 10
    with Endpoint(models, tmp_path / "log", "--port", port):
        window.until("return document.getElementById('message').textContent === ''")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("'<h1>Log in</h1>'", "The endpoint's answer cannot be read."),
        (
            "new ReadableStream({pull: (it) => it.error(new TypeError('network error'))})",
            "The endpoint's answer cannot",
        ),
        ("'{}'", ""),
    ],
)
def test_the_page_goes_on_after_an_answer_that_cannot_be_read(window, endpoint, body, said):
    window.open(endpoint.url)
    # The next request waits, so that what the page says stays until it has been read.
    script = f"""
        const original = fetch;
        window.answered = false;
        const read = new Promise((done) => {{ window.goOn = done; }});
        window.fetch = async (path, ...others) => {{
            if (path.startsWith("predict") && !window.answered) {{
                window.answered = true;
                return new Response({body});
            }}
            if (path.startsWith("predict")) await read;
            return original(path, ...others);
        }};"""
    window.driver.execute_script(script)
    window.draw([SEVEN[0][:2]], steps=1)
    shown = "return window.answered && document.getElementById('message').textContent.startsWith(arguments[0])"
    window.until(shown, said)
    window.driver.execute_script("window.goOn()")
    window.draw([SEVEN[0][1:]])
    assert window.verdict() == "7"
    assert window.get("message").text == ""


def test_the_page_sends_no_faster_than_its_key_may(models, tmp_path, window):
    with Endpoint(models, tmp_path / "log", "--rate", "3", HIGHWAY_API_KEY="s3cret") as endpoint:
        window.open(endpoint.url)
        window.keys("s3cret", "\ue007")
        window.until("return [...document.querySelectorAll('#samples img')].filter((one) => one.src).length === 10")
        window.draw(SEVEN)
        assert window.verdict() == "7"
        assert window.get("message").text == ""
        assert [line for line in window.console() if "401" not in line and "429" not in line] == []


def test_a_version_that_cannot_be_compared_is_named(page, endpoint):
    page.open(f"{endpoint.url}/?model=digits&against=digits%2F9")
    page.until("return document.getElementById('message').textContent !== ''")
    said = "Cannot compare with “digits”, version 9: it is not served."
    assert page.get("message").text == said
    page.choose("against", "other, version 1")
    page.until("return document.getElementById('message').textContent === ''")


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
        assert_clean(window, endpoint.url)

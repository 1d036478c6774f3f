"""The form of the page for models of tables."""

import json
import shutil
import subprocess

import pytest
from selenium.webdriver.support.ui import Select

from tests.e2e.browser import SEVEN


def field(page, name):
    return page.driver.find_element("css selector", f"#fields [name='{name}']")


def fill(page, **values):
    for name, value in values.items():
        if name == "city":
            Select(field(page, name)).select_by_visible_text(value)
        else:
            field(page, name).clear()
            field(page, name).send_keys(str(value))


def said(page, text):
    page.until("return document.querySelector('#answer .verdict b').textContent === arguments[0]", text)
    return page.part(".verdict span").text


def test_a_row_is_entered_and_predicted(page):
    page.choose("model", "houses")
    assert not page.get("canvas").is_displayed()
    said(page, "Fill in the form to see a prediction")
    assert "Predicts price from 3 columns" in page.part(".facts").text
    assert [one.text for one in Select(field(page, "city")).options] == ["missing", "Paris", "Rome", "Oslo"]
    fill(page, rooms=4, age=10, city="Rome")
    assert said(page, "300") == "price"
    # A field that is cleared is a missing value.
    fill(page, city="missing")
    assert said(page, "280") == "price"
    assert (page.shares(), len(page.driver.find_elements("css selector", "#answer .strip i"))) == ([], 2)
    assert not page.part(".seen").is_displayed()
    page.get("empty").click()
    said(page, "Fill in the form to see a prediction")


def test_a_column_may_be_named_like_a_property_of_forms(page):
    page.choose("model", "metals")
    fill(page, elements=4, age=10, city="Rome")
    assert said(page, "300") == "price"
    page.get("empty").click()
    said(page, "Fill in the form to see a prediction")


def test_samples_fill_the_form_and_the_code_runs(page, tmp_path, monkeypatch, capsys):
    page.choose("model", "sales")
    page.driver.find_element("xpath", "//*[@id='rows']/button[text()='yes']").click()
    assert [field(page, name).get_attribute("value") for name in ("rooms", "age", "city")] == ["4", "10", "Rome"]
    page.verdict()
    assert sorted(name for name, _ in page.shares()) == ["later", "no", "yes"]
    label = page.part(".verdict b").text

    def copied(language):
        page.driver.execute_script(
            "document.getElementById('code').open = true; document.querySelector(`[value=${arguments[0]}]`).click()",
            language,
        )
        return page.get("snippet").text

    monkeypatch.chdir(tmp_path)
    exec(compile(copied("python"), "snippet", "exec"), {})
    assert f"label='{label}'" in capsys.readouterr().out
    if shutil.which("curl"):
        answer = subprocess.run(["sh", "-c", copied("curl")], capture_output=True, text=True, check=True).stdout
        assert json.loads(answer)["predictions"][0]["top"][0]["label"] == label


def test_all_classes_above_one_half_are_shown(page):
    page.choose("model", "sales")
    assert not page.part(".several").is_displayed()
    page.choose("model", "tags")
    page.driver.find_element("xpath", "//*[@id='rows']/button[text()='yes']").click()
    assert field(page, "age").get_attribute("value") == "1970-01-11"
    assert said(page, "yes, later") == "above 50%"
    assert page.part(".several").text == "Each class has its own probability, so they do not sum to 100%."
    assert sum(share for _, share in page.shares()) > 150
    assert "Mean average precision 85.0% on 40 test rows" in page.part(".facts").text
    assert page.get("snippet").get_attribute("textContent").count('"age":"1970-01-11"') == 1


@pytest.mark.slow
def test_tables_and_images_take_turns(page):
    page.draw(SEVEN)
    assert page.verdict() == "7"
    page.choose("model", "houses")
    page.until("return document.querySelector('#answer').classList.contains('empty')")
    assert not page.get("visit").is_displayed()
    page.driver.find_elements("css selector", "#rows button")[-1].click()
    assert said(page, "340") == "price"
    page.choose("model", "digits")
    page.until("return document.querySelector('#answer .verdict b').textContent.startsWith('Draw')")
    assert page.get("canvas").is_displayed()
    assert not page.get("row").is_displayed()
    page.draw(SEVEN)
    assert page.verdict() == "7"

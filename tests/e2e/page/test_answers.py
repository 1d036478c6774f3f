"""Answers on the page, compared with the manifest and with what the endpoint answers."""

import base64
import io
from datetime import datetime

import httpx2 as httpx
import numpy as np
import pytest
from PIL import Image

from serving.manifest import ONNX, WEIGHTS, read
from tests.e2e.browser import SEVEN

ORANGE = (255, 122, 0)


def exported_on(manifest):
    """Returns the day of an export where the browser is."""
    return f"exported on {datetime.fromisoformat(manifest.created).astimezone():%-d %B %Y}"


def stored(folder):
    """Returns the bytes of the graph and the weights."""
    return sum((folder / name).stat().st_size for name in (ONNX, WEIGHTS) if (folder / name).exists())


def test_the_facts_about_an_image_model_are_those_of_its_manifest(page, models):
    page.choose("model", "trained")
    folder = models / "trained" / "1"
    manifest = read(folder)
    test = manifest.run.test
    assert page.part(".facts").text == (
        f"{test['accuracy']:.1%} right on {test['count']:,} test images of {manifest.run.data['name']}; "
        f"{manifest.model.preset}, {manifest.model.parameters:,} weights, {stored(folder) / 1e6:.1f} MB; "
        f"{exported_on(manifest)}"
    )


def test_the_facts_about_a_model_of_tables_are_those_of_its_manifest(page, models):
    page.choose("model", "houses")
    folder = models / "houses" / "1"
    manifest = read(folder)
    test = manifest.run.test
    assert page.part(".facts").text == (
        f"Predicts price from 3 columns. Off by {test['mae']:g} on average on {test['count']:,} test rows of "
        f"{manifest.run.data['name']}, R² {test['r2']:.3f}; {manifest.model.preset}, "
        f"{manifest.model.parameters:,} weights, {-(-stored(folder) // 1000)} kB; {exported_on(manifest)}"
    )


def test_a_model_without_a_test_says_so(page):
    assert "Not evaluated on test images of mnist_5k" in page.part(".facts").text


def painted(page, part):
    """Returns the pixels of a canvas of the answer."""
    script = "return document.querySelector(`#answer .${arguments[0]}`).toDataURL()"
    taken = page.driver.execute_script(script, part)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(taken.partition(",")[2]))).convert("RGB"), "float64")


def test_the_map_over_the_image_shows_the_gates_that_the_endpoint_returned(page, endpoint):
    page.choose("model", "trained")
    page.until("return document.querySelectorAll('#samples img[src]').length === 10")
    page.driver.find_element("css selector", "#samples [title='cat']").click()
    assert page.verdict() == "cat"
    sample = httpx.get(f"{endpoint.url}/models/trained/versions/1/samples/3.png").content
    # Asked again, without the page.
    asked = httpx.post(
        f"{endpoint.url}/predict/trained?seen=true&explain=true&maps=true", files={"picture": ("cat.png", sample)}
    ).json()
    (prediction,) = asked["predictions"]
    seen = np.array(prediction["seen"], "float64")
    np.testing.assert_array_equal(painted(page, "seen"), seen)
    assert [len(rows) for rows in prediction["maps"]] == [32, 16, 16, 8, 8, 4]
    for number, rows in enumerate(prediction["maps"]):
        layer = asked["map_layers"][number]
        move = """const layer = document.querySelector("#answer .layer");
            layer.value = arguments[0];
            layer.dispatchEvent(new Event("input"));"""
        page.driver.execute_script(move, number + 1)
        gates = np.array(rows)
        least, most = gates.min(), gates.max()
        assert page.part(".which").text == layer
        assert page.part(".range").text == f"{least:.1%} open (clear) to {most:.1%} (orange)"
        # Each gate lies over its part of the image: the wider open, the more orange.
        shown = painted(page, "open")
        share = 0.9 * (gates - least) / (most - least)
        share = share.repeat(len(shown) // len(gates), 0).repeat(len(shown) // len(gates), 1)[..., None]
        below = seen.repeat(len(shown) // len(seen), 0).repeat(len(shown) // len(seen), 1)
        # The canvas rounds opacities to 1/255.
        np.testing.assert_allclose(shown, below * (1 - share) + np.array(ORANGE) * share, atol=2)
        # The bar of this layer, of the same colour, is as high as its mean gate.
        (bar,) = page.driver.find_elements("css selector", "#answer .strip .shown")
        place = asked["layers"].index(layer)
        assert bar.get_attribute("title") == f"{layer}: {prediction['gates'][place]:#.2g}"
        height = bar.rect["height"] / page.part(".strip").rect["height"]
        assert height == pytest.approx(prediction["gates"][place], abs=0.03)


def test_two_versions_of_a_model_answer_side_by_side(page, endpoint):
    page.open(f"{endpoint.url}/?model=other&version=1")
    page.choose("against", "other, version 2")
    page.draw(SEVEN)
    # Version 2 names the classes in reverse.
    page.until("return document.querySelector('#other .verdict b')?.textContent === '2'")
    assert page.verdict() == "7"
    cards = [page.get(name) for name in ("answer", "other")]
    said = [[card.find_element("css selector", part).text for part in (".title", ".source")] for card in cards]
    assert [title for title, _ in said] == ["other, version 1", "other, version 2"]
    assert [source.partition(" in ")[0] for _, source in said] == ["Answered by version 1", "Answered by version 2"]
    # Next to each other, with the same axis.
    first, second = (card.rect for card in cards)
    assert first["y"] == second["y"]
    assert first["x"] + first["width"] < second["x"]
    assert len({card.find_element("css selector", ".most").text for card in cards}) == 1
    assert page.driver.current_url == f"{endpoint.url}/?model=other&version=1&against=other%2F2"
    page.get("undo").click()
    page.until("return document.querySelectorAll('.card.empty .verdict b').length === 2")

"""Headless Chromium driven by mouse, touch and keyboard."""

import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
# Strokes of a seven and a three, in fractions of the canvas.
SEVEN = [[(0.28, 0.25), (0.72, 0.25), (0.45, 0.8)]]
THREE = [[(0.32, 0.25), (0.55, 0.2), (0.65, 0.32), (0.48, 0.47), (0.68, 0.6), (0.6, 0.77), (0.32, 0.75)]]
PHONE, TALL = (390, 844), (1100, 900)
Strokes = Sequence[Sequence[tuple[float, float]]]


class Browser:
    """A page in Chromium."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Opens the page and waits for its models."""
        self.driver.get(url)
        self.until(
            "return document.getElementById('model').options.length > 0 || !document.getElementById('key').hidden"
        )

    def emulate(self, size: tuple[int, int], dark: bool = False, touch: bool = False, scale: int = 1) -> None:
        """Sets the size of the window, the colour scheme, and whether it has a touch screen."""
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": scale, "mobile": touch}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": touch})
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def leave(self) -> None:
        """Leaves the page, and forgets its console and its requests."""
        self.driver.get("about:blank")
        self.console()
        self.hosts()

    def part(self, selector: str):
        """Returns the first element of the answer that a selector matches."""
        return self.driver.find_element(By.CSS_SELECTOR, f"#answer {selector}")

    def get(self, element: str):
        """Returns an element by its id."""
        return self.driver.find_element(By.ID, element)

    def until(self, script: str, *values: object, seconds: float = 15) -> None:
        """Waits until a script returns a true value."""
        until = time.monotonic() + seconds
        while not self.driver.execute_script(script, *values):
            assert time.monotonic() < until, f"timed out: {script} {values}; {self.get('message').text}"
            # Each question is answered by four processes.
            time.sleep(0.05)

    def choose(self, which: str, text: str) -> None:
        """Chooses an option of a list by its text."""
        Select(self.get(which)).select_by_visible_text(text)

    def verdict(self) -> str:
        """Returns the displayed class once the page is idle."""
        self.until("return document.querySelector('#answer[aria-busy=false]:not(.empty):not(.old)') !== null")
        return self.driver.execute_script("return document.querySelector('#answer .verdict b').textContent")

    def draw(self, strokes: Strokes, steps: int = 6) -> None:
        """Draws with the mouse."""
        box = self.get("canvas").rect
        for stroke in strokes:
            action = ActionChains(self.driver, duration=8)
            for number, (x, y) in enumerate(_points(stroke, steps)):
                action.w3c_actions.pointer_action.move_to_location(*_at(box, x, y))
                if number == 0:
                    action.w3c_actions.pointer_action.pointer_down()
            action.w3c_actions.pointer_action.pointer_up()
            action.perform()

    def touch(self, strokes: Strokes, steps: int = 6) -> None:
        """Draws with a finger."""
        box = self.get("canvas").rect
        for stroke in strokes:
            for number, (x, y) in enumerate(_points(stroke, steps)):
                at = dict(zip("xy", _at(box, x, y), strict=True))
                kind = "touchMove" if number else "touchStart"
                self.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [at]})
            self.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    def keys(self, *keys: str) -> ActionChains:
        """Presses keys one after the other, at the current focus."""
        action = ActionChains(self.driver, duration=8)
        for key in keys:
            action.send_keys(key)
        action.perform()
        return action

    def add_file(self, how: str, path: Path, kind: str) -> None:
        """Drops or pastes a file."""
        script = """
            const [how, bytes, name, type] = arguments;
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], name, {type}));
            const event = how === "paste" ? new ClipboardEvent("paste", {clipboardData: data, bubbles: true})
                : new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true});
            document.getElementById("canvas").dispatchEvent(event);
        """
        self.driver.execute_script(script, how, list(path.read_bytes()), path.name, kind)

    def shares(self) -> list[tuple[str, float | None]]:
        """Returns the classes that the answer shows, with their percentages if it has them."""
        script = """return [...document.querySelectorAll("#answer .bars li")].map(
            (row) => [row.querySelector(".name").textContent, row.querySelector(".share").textContent])"""
        found = self.driver.execute_script(script)
        return [(name, float(share.removesuffix("%")) if share else None) for name, share in found]

    def seen(self) -> tuple[int, int, list[int]]:
        """Returns width, height and grey values of the input of the net, as shown."""
        script = """const canvas = document.querySelector("#answer .seen");
            const {data, width, height} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return [width, height, [...data].filter((_, place) => place % 4 == 0)]"""
        width, height, pixels = self.driver.execute_script(script)
        return width, height, pixels

    def marks(self) -> list[list[float]]:
        """Returns left, top, right and bottom of each part of the image that the net looked at, as shares of it."""
        script = """const {left, top, width, height} = document.getElementById("canvas").getBoundingClientRect();
            return [...document.querySelectorAll("#crops i")].map((mark) => mark.getBoundingClientRect()).map((box) =>
                [(box.left - left) / width, (box.top - top) / height,
                 (box.right - left) / width, (box.bottom - top) / height])"""
        return self.driver.execute_script(script)

    def console(self) -> list[str]:
        """Returns the errors in the console."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def hosts(self) -> set[str]:
        """Returns all hosts that the page has contacted."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        urls = (one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent")
        return {url.split("/")[2] for url in urls if url.startswith(("http", "ws"))}


def assert_clean(page: Browser, url: str) -> None:
    """Asserts that a page has an empty console, and has contacted no host but its own."""
    assert page.console() == []
    assert page.hosts() == {url.removeprefix("http://")}


@contextmanager
def browser(
    size: tuple[int, int] = (1100, 800),
    dark: bool = False,
    touch: bool = False,
    scale: int = 1,
    camera: Path | None = None,
) -> Iterator[Browser]:
    """Opens Chromium with a window of this size.

    Args:
        size: width and height.
        dark: whether the colour scheme is dark.
        touch: whether there is a touch screen.
        scale: pixels of the device per pixel of the page.
        camera: JPEG images, one after the other, that the camera shows.
    """
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for word in (
            "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update",
            # The camera is allowed without a question.
            "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
            *([f"--use-file-for-fake-video-capture={camera}"] if camera else []),
            f"--user-data-dir={profile}",
        ):  # fmt: skip
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
        try:
            page = Browser(driver)
            page.emulate(size, dark, touch, scale)
            yield page
        finally:
            driver.quit()


def _at(box: dict, x: float, y: float) -> tuple[int, int]:
    return round(box["x"] + x * box["width"]), round(box["y"] + y * box["height"])


def _points(stroke: Sequence[tuple[float, float]], steps: int) -> Iterator[tuple[float, float]]:
    """Yields the points of a stroke, `steps` to each of its segments."""
    yield stroke[0]
    for (x, y), (to_x, to_y) in itertools.pairwise(stroke):
        for step in range(1, steps + 1):
            yield x + (to_x - x) * step / steps, y + (to_y - y) * step / steps

"""Screenshots of the page for the documentation.

    python -m tests.e2e.screenshots models/ docs/images --model digits

Starts `highway serve` over the repository, draws a digit in Chromium, and writes endpoint.png and endpoint-phone.png.
"""

import argparse
import base64
import io
import tempfile
import time
from pathlib import Path

from PIL import Image

from tests.e2e.browser import PHONE, SEVEN, THREE, browser
from tests.endpoint import Endpoint


def main() -> None:
    """Takes the screenshots."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", type=Path)
    parser.add_argument("to", type=Path)
    parser.add_argument("--model")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    shots = (("endpoint", (1040, 640), False, SEVEN), ("endpoint-phone", PHONE, True, THREE))
    with tempfile.TemporaryDirectory() as folder, Endpoint(given.models, Path(folder) / "log") as endpoint:
        for name, size, phone, strokes in shots:
            with browser(size, dark=phone, touch=phone, scale=2 if phone else 1) as page:
                page.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
                page.open(endpoint.url)
                if given.model:
                    page.choose("model", given.model)
                page.touch(strokes) if phone else page.draw(strokes)
                page.verdict()
                # The bars are animated.
                time.sleep(0.5)
                shoot(page, given.to / f"{name}.png")


def shoot(page, path: Path) -> None:
    """Saves a screenshot of the whole page, including what is below the window."""
    taken = page.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    # 256 colours take a third of the space, and look the same.
    shot = Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")
    shot.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()

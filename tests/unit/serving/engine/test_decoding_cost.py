import io
import zlib

import pytest
from PIL import Image

from serving.engine.decoding import LIGHT, estimate


def saved(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def chunk(kind, content=b""):
    return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")


def with_chunk(png, kind, content):
    """Returns a PNG file with a chunk before its pixels."""
    return png[:33] + chunk(kind, content) + png[33:]


DIGIT = saved(Image.new("L", (28, 28)), "PNG")
LARGE = saved(Image.new("1", (7000, 7100)), "PNG")
JPEG = saved(Image.new("RGB", (300, 300)), "JPEG")


@pytest.mark.parametrize(
    "file", [DIGIT, JPEG, saved(Image.new("RGBA", (280, 280)), "PNG"), with_chunk(DIGIT, b"pHYs", bytes(9))]
)
def test_small_plain_files_are_light(file):
    assert estimate(file).light


ODD = {
    "pixels": LARGE,
    "jpeg": saved(Image.new("L", (1500, 1500)), "JPEG"),
    "other format": saved(Image.new("L", (8, 8)), "GIF"),
    "profile": with_chunk(DIGIT, b"iCCP", b"a\0\0" + zlib.compress(bytes(2**20))),
    "exif": with_chunk(DIGIT, b"eXIf", bytes(20_000)),
    "chunks": DIGIT[:33] + chunk(b"tEXt", b"a\0") * 100 + DIGIT[33:],
    "chunks behind the pixels": DIGIT[:-12] + chunk(b"abCd") * 1000 + DIGIT[-12:],
    "empty pixels": DIGIT[:33] + chunk(b"IDAT") * 1000 + DIGIT[33:],
    "two headers": with_chunk(DIGIT, b"IHDR", LARGE[16:29]),
    "text like a header": LARGE[:8] + chunk(b"tEXt", DIGIT[16:29]) + LARGE[8:],
    "segments": JPEG[:2] + b"\xff\xe5\x00\x02" * 100 + JPEG[2:],
    "fill": JPEG[:2] + b"\xff" * 1000 + JPEG[2:],
    "scans": JPEG[:-2] + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" * 1000 + JPEG[-2:],
    "text behind the pixels": DIGIT[:-12] + chunk(b"zTXt", b"a\0\0") + DIGIT[-12:],
}


@pytest.mark.parametrize("file", ODD.values(), ids=ODD)
def test_large_or_unusual_files_are_not_light(file):
    assert len(file) < 40_000
    assert not estimate(file).light


@pytest.mark.parametrize("file", [DIGIT, JPEG])
def test_a_file_cut_anywhere_is_estimated(file):
    for length in range(200):
        assert estimate(file[:length]).seconds > 0


def test_more_work_takes_longer():
    def seconds(side, form, **options):
        return estimate(saved(Image.new("RGB", (side, side)), form, **options)).seconds

    assert seconds(300, "JPEG") < seconds(1000, "JPEG") < seconds(1000, "JPEG", progressive=True)
    assert seconds(1000, "JPEG") > LIGHT
    assert seconds(28, "PNG") < 1e-4 < seconds(1000, "PNG")

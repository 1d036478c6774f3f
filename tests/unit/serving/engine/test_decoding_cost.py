import io
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
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


def before_the_frame(*parts):
    """Returns a large JPEG file that begins with other bytes, and then a comment that looks like a small image."""
    large = saved(Image.new("L", (3000, 3000)), "JPEG", progressive=True)
    comment = (b"\xff\xc0\x00\x11\x08\x00\x08\x00\x08\x03" + bytes(9)) * 3000
    return large[:2] + b"".join(parts) + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + large[2:]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.just(b"\xff"),
            st.integers(0, 255).map(lambda kind: bytes([0xFF, kind])),
            st.tuples(st.integers(0, 255), st.integers(0, 60)).map(lambda both: bytes([0xFF, both[0], 0, both[1]])),
            st.binary(max_size=4),
        ),
        max_size=4,
    )
)
@example([b"\xff"])
@example([b"\xff\xd0"])
@example([b"\xff\xe0\x00\x01"])
def test_no_large_file_passes_for_a_small_one(parts):
    assert not estimate(before_the_frame(*parts)).light


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


NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 64, (800, 800, 3), dtype="uint8"))


def test_of_a_progressive_file_only_the_scans_that_are_decoded_cost_time():
    # 800 pixels shrink to an eighth if 96 are enough, and to a quarter for 200.
    whole, plain = saved(NOISE, "JPEG", progressive=True), saved(NOISE, "JPEG")
    assert estimate(whole, side=96).seconds < 2 * estimate(plain, side=96).seconds
    assert estimate(whole, side=200).seconds > 2 * estimate(plain, side=200).seconds
    # Details of colours at half the size are decoded.
    full = saved(NOISE, "JPEG", progressive=True, subsampling=0)
    assert estimate(whole, side=96).seconds > estimate(full, side=96).seconds
    # Files like this one are decoded whole if they are damaged, which its header does not show.
    assert not estimate(whole, side=96).light


def with_scans(count, header):
    whole = saved(NOISE, "JPEG", progressive=True)
    return whole[:-2] + (b"\xff\xda" + header) * count + whole[-2:]


def test_scans_of_means_and_more_scans_than_files_have_cost_time():
    few, details, means = (
        estimate(with_scans(count, bytes([0, 8, 1, 1, 0, first, 63, 0])), side=96).seconds
        for count, first in ((1, 1), (40, 1), (40, 0))
    )
    assert details == pytest.approx(few, rel=0.01)
    assert means > 5 * few
    assert estimate(with_scans(100, bytes([0, 8, 1, 1, 0, 1, 63, 0])), side=96).seconds > 10 * few


@pytest.mark.parametrize("factors", [0x00, 0x12, 0x21])
def test_a_progressive_file_with_odd_components_is_estimated(factors):
    whole = bytearray(saved(NOISE, "JPEG", progressive=True))
    frame = whole.index(b"\xff\xc2")
    for at in range(frame + 11, frame + 20, 3):
        whole[at] = factors if factors == 0 or at == frame + 11 else 0x33 - factors
    assert estimate(bytes(whole), side=96).seconds > 0
    whole[frame + 9] = 0
    assert estimate(bytes(whole), side=96).seconds > 0
    for end in range(frame, len(whole), 997):
        assert estimate(bytes(whole[:end]), side=96).seconds > 0

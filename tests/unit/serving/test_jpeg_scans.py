import io
import itertools

import numpy as np
import pytest
from PIL import Image

from serving import image_files
from serving.jpeg_scans import without_details

# Just large enough for an eighth; the sides are not multiples of 8.
SIZE = (4003, 45)


def progressive(mode="RGB", **options):
    """Returns a file with noise, so that every scan has values."""
    noise = np.random.default_rng(0).integers(0, 64, (SIZE[1], SIZE[0], 3), dtype="uint8")
    file = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(file, "JPEG", **{"progressive": True, **options})
    return file.getvalue()


def decoded(encoded, mode=None):
    with Image.open(io.BytesIO(encoded)) as image:
        image.draft(mode, (image.width // 8, image.height // 8))
        return np.asarray(image)


def scans(encoded):
    """Returns the name of the first component and the first value of each scan; these files have no thumbnails."""
    return [(part[3], part[4 + 2 * part[2] - 1]) for part in encoded.split(b"\xff\xda")[1:]]


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_an_eighth_of_the_size_has_the_same_pixels(mode):
    for subsampling, quality, rows in itertools.product(("4:4:4", "4:2:2", "4:2:0"), (40, 90), (0, 2)):
        whole = progressive(mode, subsampling=subsampling, quality=quality, restart_marker_rows=rows)
        short = without_details(whole)
        assert len(short) < len(whole)
        for wanted in (None, "L"):
            np.testing.assert_array_equal(decoded(short, wanted), decoded(whole, wanted))


def test_only_scans_that_are_not_seen_are_left_out():
    half = progressive(subsampling="4:2:0")
    assert len({scan for scan in scans(half) if scan[0] == 1}) > 2
    # The means, in all components; the details of colours, at half the size; one empty scan of the first component.
    kept = scans(without_details(half))
    assert [scan for scan in kept if scan[0] == 1] == [(1, 0), (1, 0), (1, 1)]
    assert {scan[0] for scan in kept} == {1, 2, 3}
    assert sorted(scans(without_details(progressive(subsampling="4:4:4")))) == [(1, 0), (1, 0), (1, 1), (2, 1), (3, 1)]


def test_a_decoder_reads_the_short_file(monkeypatch):
    whole = progressive()
    expected = image_files.decode(whole, "a")
    used = []
    monkeypatch.setattr(image_files, "without_details", lambda file: used.append(without_details(file)) or used[-1])
    np.testing.assert_array_equal(image_files.decode(whole, "a"), expected)
    assert len(used[0]) < len(whole) / 2
    image_files.decode(progressive(progressive=False), "a")
    image_files.decode(whole, "a", side=4)
    assert len(used) == 2


def test_the_orientation_is_kept():
    exif = Image.Exif()
    exif[0x0112] = 6
    assert image_files.decode(progressive(exif=exif), "a").shape[0] > 500


def test_other_and_damaged_files_are_left_to_the_decoder():
    whole = progressive()
    assert without_details(progressive(progressive=False)) is None
    for end in (1, 2, 3, 20, len(whole) // 2, len(whole) - 2, len(whole) - 1):
        assert without_details(whole[:end]) is None, end
    rng = np.random.default_rng(1)
    for _ in range(300):
        broken = bytearray(whole)
        broken[rng.integers(2, 700)] = rng.integers(256)
        # Whatever it returns, it raises nothing.
        without_details(bytes(broken))
    with pytest.raises(image_files.ImageError, match="truncated"):
        image_files.decode(whole[: len(whole) // 2], "a")

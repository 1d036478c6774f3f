import numpy as np
import pytest
from PIL import Image

from pipelines.data.sheet import draw_sheet, save_pictures


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_saved_pixel_for_pixel(tmp_path, channels):
    images = np.random.default_rng(0).integers(0, 256, (3, 6, 5, channels), dtype="uint8")
    paths = save_pictures(images, ["a", "b", "c"], tmp_path / "new")
    assert [path.name for path in paths] == ["a.png", "b.png", "c.png"]
    for path, image in zip(paths, images, strict=True):
        np.testing.assert_array_equal(read(path).reshape(image.shape), image)
    assert len(list((tmp_path / "new").iterdir())) == 3


def read(path):
    with Image.open(path) as picture:
        return np.asarray(picture)


def red(path):
    """How many pixels are of the colour that marks a wrong one."""
    pixels = read(path)[..., :3].astype(int)
    return int((np.abs(pixels - [0xC0, 0x39, 0x2B]).max(-1) < 12).sum())


@pytest.mark.parametrize(("count", "channels"), [(1, 1), (10, 3), (13, 1)])
def test_only_wrong_pictures_are_marked(tmp_path, count, channels):
    images = np.full((count, 8, 8, channels), 90, "uint8")
    truth = ["cat"] * count
    draw_sheet(images, truth, truth, [0.5] * count, tmp_path / "right.png")
    draw_sheet(images, truth, ["dog", *truth[1:]], [0.5] * count, tmp_path / "wrong.png")
    assert red(tmp_path / "right.png") == 0
    assert red(tmp_path / "wrong.png") > 500
    height, width = read(tmp_path / "right.png").shape[:2]
    assert width > height or count == 1


def test_as_many_labels_as_pictures(tmp_path):
    with pytest.raises(ValueError, match="zip"):
        draw_sheet(np.zeros((2, 4, 4, 1), "uint8"), ["a", "b"], ["a"], [0.5, 0.5], tmp_path / "sheet.png")
    assert list(tmp_path.iterdir()) == []

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from PIL import Image

from pipelines.data.figures import ImageRow, draw_predictions, draw_rows, save_images


@pytest.fixture
def axes(tmp_path, monkeypatch):
    """A function that draws rows and returns the image artists of the figure."""
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *rest: (figures.append(figure), save(figure, *rest)))

    def make(rows, labels):
        path = tmp_path / "image.png"
        draw_rows(rows, labels, "heading", "note", path)
        assert imread(path).shape[-1] == 4
        return [place.images[0] for place in figures[0].axes if place.images]

    return make


def test_stored_pixels_are_shown_on_the_full_scale(axes):
    faint = np.full((2, 4, 4, 1), 10, np.uint8)
    for image in axes([ImageRow("as stored", faint)], ["a", "b"]):
        assert image.get_clim() == (0, 255)


def test_seen_values_share_one_scale_about_zero(axes):
    stored = np.zeros((1, 4, 4, 1), np.uint8)
    seen = np.linspace(-1, 2, 16, dtype=np.float32).reshape(1, 4, 4, 1)
    rows = [ImageRow("as stored", stored), ImageRow("preprocessed", seen), ImageRow("augmented", seen / 2)]
    _, *shown = axes(rows, ["a"])
    limits = {image.get_clim() for image in shown}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low == -high
    assert 1.5 < high <= 2


def test_colours_are_scaled_alike_in_all_channels(axes):
    seen = np.zeros((1, 2, 2, 3), np.float32)
    seen[0, 0, 0] = [-4, 0, 4]
    (image,) = axes([ImageRow("preprocessed", seen)], ["a"])
    np.testing.assert_allclose(image.get_array()[0, 0], [0, 0.5, 1])
    np.testing.assert_allclose(image.get_array()[1, 1], 0.5)  # Zero, the padding, is mid-grey.


def test_values_without_negative_ones_start_at_black(axes):
    (image,) = axes([ImageRow("preprocessed", np.linspace(0, 1, 4, dtype=np.float32).reshape(1, 2, 2, 1))], ["a"])
    assert image.get_clim() == (0, 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_saved_pixel_for_pixel(tmp_path, channels):
    images = np.random.default_rng(0).integers(0, 256, (3, 6, 5, channels), dtype="uint8")
    paths = save_images(images, ["a", "b", "c"], tmp_path / "new")
    assert [path.name for path in paths] == ["a.png", "b.png", "c.png"]
    for path, image in zip(paths, images, strict=True):
        np.testing.assert_array_equal(read(path).reshape(image.shape), image)
    assert len(list((tmp_path / "new").iterdir())) == 3


def read(path):
    with Image.open(path) as image:
        return np.asarray(image)


def red(path):
    """Counts the pixels in the colour of errors."""
    pixels = read(path)[..., :3].astype(int)
    return int((np.abs(pixels - [0xC0, 0x39, 0x2B]).max(-1) < 12).sum())


@pytest.mark.parametrize(("count", "channels"), [(1, 1), (10, 3), (13, 1)])
def test_only_wrong_images_are_marked(tmp_path, count, channels):
    images = np.full((count, 8, 8, channels), 90, "uint8")
    truth = ["cat"] * count
    draw_predictions(images, truth, truth, [0.5] * count, tmp_path / "right.png")
    draw_predictions(images, truth, ["dog", *truth[1:]], [0.5] * count, tmp_path / "wrong.png")
    assert red(tmp_path / "right.png") == 0
    assert red(tmp_path / "wrong.png") > 500
    height, width = read(tmp_path / "right.png").shape[:2]
    assert width > height or count == 1


def test_as_many_labels_as_images(tmp_path):
    with pytest.raises(ValueError, match="zip"):
        draw_predictions(np.zeros((2, 4, 4, 1), "uint8"), ["a", "b"], ["a"], [0.5, 0.5], tmp_path / "sheet.png")
    assert list(tmp_path.iterdir()) == []

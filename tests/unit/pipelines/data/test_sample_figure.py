import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from pipelines.data.sample_figure import Row, draw


@pytest.fixture
def axes(tmp_path, monkeypatch):
    """A function that draws rows and gives the images of the figure, before it was rendered."""
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *rest: (figures.append(figure), save(figure, *rest)))

    def make(rows, labels):
        path = tmp_path / "picture.png"
        draw(rows, labels, "heading", "note", path)
        assert imread(path).shape[-1] == 4
        return [place.images[0] for place in figures[0].axes if place.images]

    return make


def test_stored_pixels_are_shown_on_the_full_scale(axes):
    faint = np.full((2, 4, 4, 1), 10, np.uint8)
    for image in axes([Row("as stored", faint)], ["a", "b"]):
        assert image.get_clim() == (0, 255)


def test_seen_values_share_one_scale_about_zero(axes):
    stored = np.zeros((1, 4, 4, 1), np.uint8)
    seen = np.linspace(-1, 2, 16, dtype=np.float32).reshape(1, 4, 4, 1)
    _, *shown = axes([Row("as stored", stored), Row("preprocessed", seen), Row("augmented", seen / 2)], ["a"])
    limits = {image.get_clim() for image in shown}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low == -high
    assert 1.5 < high <= 2


def test_colours_are_scaled_alike_in_all_channels(axes):
    seen = np.zeros((1, 2, 2, 3), np.float32)
    seen[0, 0, 0] = [-4, 0, 4]
    (image,) = axes([Row("preprocessed", seen)], ["a"])
    np.testing.assert_allclose(image.get_array()[0, 0], [0, 0.5, 1])
    np.testing.assert_allclose(image.get_array()[1, 1], 0.5)  # Zero, the padding, is the middle grey.


def test_values_without_negative_ones_start_at_black(axes):
    (image,) = axes([Row("preprocessed", np.linspace(0, 1, 4, dtype=np.float32).reshape(1, 2, 2, 1))], ["a"])
    assert image.get_clim() == (0, 1)

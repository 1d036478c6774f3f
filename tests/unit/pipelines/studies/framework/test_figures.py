import pytest
from PIL import Image

from pipelines.studies.framework.figures import Figures


@pytest.mark.parametrize("label", ["", "short schedule, budget 0.1: 1 of 3 seeds"])
def test_the_label_of_a_short_schedule_is_on_every_figure(tmp_path, label):
    figures = Figures(tmp_path, label)
    with figures.figure("a", (4, 3), "A title", "A caption.") as figure:
        figure.subplots().plot([1, 2])
    assert figure.get_suptitle() == "A title"
    assert figure.get_supxlabel() == label
    assert [(made.file, made.title, made.caption) for made in figures.files] == [("a.png", "A title", "A caption.")]
    frames = []

    def draw(frame, number):
        frames.append(frame)
        frame.subplots().bar([1, 2], [number, 2])

    figures.animation("b", (4, 3), "Moves", draw, frames=3)
    assert [frame.get_supxlabel() for frame in frames] == [label] * 3
    with Image.open(tmp_path / "b.gif") as moving:
        assert (moving.n_frames, moving.info["loop"]) == (3, 0)


@pytest.mark.parametrize("inches", [4.5, 5, 5.5])
def test_a_long_label_wraps_at_the_edge_of_the_figure(tmp_path, inches):
    label = "short schedule, budget 0.1: 95 of 300 epochs, 18,947 of 60,000 training examples, 1 of 1 seeds"
    figures = Figures(tmp_path, label)
    with figures.figure("a", (inches, 3), "A title", "A caption.") as figure:
        figure.subplots().plot([1, 2])
    lines = figure.get_supxlabel()
    assert lines.split() == label.split()
    figure.canvas.draw()
    extent = next(text for text in figure.texts if text.get_text() == lines).get_window_extent()
    assert 0 <= extent.x0 < extent.x1 <= figure.bbox.width


def test_a_figure_that_fails_leaves_nothing(tmp_path):
    figures = Figures(tmp_path, "")

    def fail():
        with figures.figure("a", (4, 3), "A", "A."):
            raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        fail()
    assert figures.files == []
    assert list(tmp_path.iterdir()) == []

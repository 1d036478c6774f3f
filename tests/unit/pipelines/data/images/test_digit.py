import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from pipelines.data import sources
from pipelines.data.images.digit import BLACK, FINE, TOUCHING, digit, is_stored, redraw

DIGITS = 60


@pytest.fixture(scope="module")
def normalized():
    made = found_in()
    return lambda image: made(image).image


@functools.cache
def found_in():
    """The conversion, traced once."""
    # As in `pipelines.data.images.conversion`, whose conversion AutoGraph would only slow down.
    return tf.function(digit, input_signature=[tf.TensorSpec((None, None), tf.float32)], autograph=False)


@pytest.fixture(scope="module")
def digits():
    """Real digits as stored by MNIST."""
    return sources.load("mnist_5k", "train").images[:DIGITS, :, :, 0].astype(np.float32)


def test_a_digit_as_stored_is_left_alone(normalized, digits):
    for image in digits:
        np.testing.assert_array_equal(normalized(image), image)


def test_a_stored_digit_may_touch_its_edge(normalized, digits):
    for image in digits:
        first = int(np.flatnonzero(image.max(axis=1) >= BLACK)[0])
        moved = np.roll(image, -first, axis=0)
        touching = int((moved[0] >= BLACK).sum())
        assert touching
        if touching <= TOUCHING:
            np.testing.assert_array_equal(normalized(moved), moved)


@settings(deadline=None)
@given(st.sets(st.integers(0, 4 * 26 - 1)), st.integers(64, 255))
def test_an_edge_is_black_but_for_touching_strokes(places, brightness):
    edge = np.zeros(4 * 26, np.float32)
    edge[[*places]] = brightness
    image = np.zeros((28, 28), np.float32)
    # Without the corners, which would count twice.
    image[0, 1:-1], image[1:-1, -1], image[-1, 1:-1], image[1:-1, 0] = np.split(edge, 4)
    assert bool(is_stored(tf.constant(image))) == (len(places) <= TOUCHING)


def test_dark_on_light_becomes_the_stored_digit(normalized, digits):
    same = [np.array_equal(normalized(255 - image), _stretched(image)) for image in digits]
    assert np.mean(same) >= 0.95


@pytest.mark.parametrize("factor", [2, 5, 20])
def test_a_larger_digit_becomes_the_same(normalized, digits, factor):
    # Thick strokes would be thinned.
    thin = [image for image in digits if not redraw(enlarged(image, FINE)).needed]
    assert len(thin) > DIGITS / 2
    # Some centres of mass are so close to a pixel boundary that they round to the other pixel.
    near = [np.abs(normalized(255 - enlarged(image, factor)) - image).mean() < 6 for image in thin]
    assert np.mean(near) >= 0.9


def test_paper_may_be_grey_and_unevenly_lit(normalized, digits):
    y, x = np.mgrid[:28, :28]
    for image in digits[:20]:
        light = 150 + y - 2 * x
        np.testing.assert_allclose(normalized(light * (1 - 0.8 * image / 255)), image, atol=40)


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (3, 2), (28, 28), (300, 7)])
def test_paper_without_a_digit_is_black(normalized, size):
    assert not normalized(np.full(size, 200, np.float32)).numpy().any()


@settings(deadline=None, max_examples=30)
@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 60), st.integers(1, 60)),
        elements=st.integers(0, 255).map(float),
    )
)
def test_every_image_becomes_some_digit(normalized, image):
    found = normalized(image).numpy()
    assert found.shape == (28, 28)
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 255
    np.testing.assert_array_equal(found, np.round(found))


def enlarged(image, factor):
    return np.kron(image, np.ones((factor, factor), np.float32))


def drawn(image, factor=6, margin=30, paper=210.0, ink=40.0):
    """Returns a digit on paper, dark on light and large."""
    share = np.pad(enlarged(image, factor), margin) / 255
    return paper * (1 - share) + ink * share


def add_table(image):
    image[:, -20:] = 70


def add_light_table(image):
    image[:14] = 250


def add_frame(image):
    image[8:-8, (8, 9, 10, -9, -10, -11)] = image[(8, 9, 10, -9, -10, -11), 8:-8] = 40


def add_speck(image):
    image[6:13, 6:13] = 40


def add_round_speck(image):
    """Adds a spot a fifth as high as the digit."""
    image[np.hypot(*np.ogrid[-14 : image.shape[0] - 14, -14 : image.shape[1] - 14]) < 12] = 40


def add_line(image):
    image[10:13] = 40


@pytest.mark.parametrize("add", [add_table, add_light_table, add_frame, add_speck, add_round_speck, add_line])
def test_what_is_no_stroke_is_left_out(normalized, digits, add):
    for image in digits[:10]:
        clean = drawn(image)
        expected = normalized(clean)
        add(clean)
        # Table or line may move an edge of the box by a pixel.
        assert np.abs(normalized(clean) - expected).mean() < 6
        assert len(found_in()(clean).boxes) == 1


@pytest.mark.parametrize("side", range(4))
def test_a_digit_may_touch_the_edge_of_the_image(normalized, digits, side):
    for image in digits[:10]:
        # The side that touches the edge is turned to the top, and back.
        turned = np.rot90(image, side)
        cut = np.rot90(drawn(turned[np.argmax((turned > 0).any(axis=1)) :], margin=0), -side)
        whole = normalized(drawn(image)).numpy()
        assert np.abs(normalized(cut.copy()) - whole).mean() < 12
        assert len(found_in()(cut.copy()).boxes) == 1


def test_digits_are_counted_and_found_from_left_to_right(digits):
    three = np.concatenate([drawn(image) for image in digits[[7, 23, 41]]], axis=1)
    boxes = found_in()(three).boxes.numpy()
    assert len(boxes) == 3
    for number, (top, bottom, left, right) in enumerate(boxes):
        assert number / 3 < left < right < (number + 1) / 3
        assert 0.1 < top < bottom < 0.9


@pytest.mark.parametrize("axis", [0, 1])
def test_a_long_row_or_column_of_digits_is_found(digits, axis):
    many = np.concatenate([np.pad(drawn(image), 20, constant_values=210.0) for image in digits[:12]], axis=axis)
    boxes = found_in()(many).boxes.numpy()
    assert len(boxes) == 12
    sizes = boxes[:, 2 * axis + 1] - boxes[:, 2 * axis]
    assert sizes.max() < 1 / 12


@settings(deadline=None, max_examples=40)
@given(st.floats(0.02, 0.15), *[st.tuples(st.floats(0, 1), st.integers(60, 300))] * 2, st.booleans())
# A few cells of the grid, which is coarser along the longer side.
@example(0.0231, (1.0, 60), (0.381, 209), False)
@example(0.0222, (0.327, 210), (1.0, 69), True)
def test_a_dot_of_any_size_is_no_digit(share, down, across, light):
    height, width = down[1], across[1]
    radius = min(share * max(height, width), 0.9 * min(height, width)) / 2
    y, x = (radius + at * (side - 1 - 2 * radius) for at, side in (down, across))
    rows, columns = np.mgrid[:height, :width]
    inked = np.hypot(rows - y, columns - x) < radius
    image = np.where(inked, 40, 200) if not light else np.where(inked, 220, 30)
    assert not len(found_in()(image.astype(np.float32)).boxes)


@pytest.mark.parametrize("kind", ["blank", "grain", "noise", "dot", "black"])
def test_images_without_a_digit_have_no_boxes(kind):
    random = np.random.default_rng(0)
    image = {
        "blank": np.full((90, 120), 200.0),
        "grain": random.normal(200, 9, (90, 120)),
        "noise": random.uniform(0, 255, (90, 120)),
        "dot": np.where(np.hypot(*np.mgrid[-45:45, -60:60]) < 8, 40.0, 200.0),
        "black": np.zeros((28, 28)),
    }[kind]
    assert not len(found_in()(image.astype(np.float32)).boxes)


@pytest.mark.parametrize("table", [30.0, 120.0, 250.0])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_a_blank_sheet_with_the_edge_of_a_table_has_no_digit(table, share):
    """A table on one side, on two adjacent sides, and across a corner."""
    y, x = np.mgrid[:300, :300] / 300
    paper = np.random.default_rng(0).normal(200, 2, (300, 300))
    for covered in (y < share, x > 1 - share, (y < share) | (x > 1 - share), x + y < max(2 * share, 0.2)):
        assert not len(found_in()(np.where(covered, table, paper).astype(np.float32)).boxes)


def test_a_one_to_which_an_image_is_cropped_is_a_digit():
    """Its strokes are along the sides of the image, as a table would be."""
    y, x = np.mgrid[:200, :50]
    one = np.hypot(x - 25 - 12 * np.sin(y / 40), 0 * y) < 12
    assert len(found_in()(np.where(one, 40.0, 220.0).astype(np.float32)).boxes) == 1


@pytest.mark.parametrize("table", [40.0, 110.0])
@pytest.mark.parametrize("margins", [(120, 120, 120, 120), (0, 120, 120, 120), (120, 120, 0, 0)])
def test_a_digit_on_a_sheet_is_read_though_the_table_is_larger(normalized, digits, table, margins):
    near, found = [], []
    for image in digits[:10]:
        clean = drawn(image)
        photographed = np.pad(clean, (margins[:2], margins[2:]), constant_values=table)
        near.append(np.abs(normalized(photographed) - normalized(clean)).mean() < 6)
        found.append(len(found_in()(photographed).boxes) == 1)
    assert np.mean(near) >= 0.9
    assert np.mean(found) >= 0.9


def on_turned_sheet(digit, degrees, table):
    """Returns a digit on a sheet that is turned, with a table on all sides."""
    sheet = Image.fromarray(drawn(digit).astype(np.float32))
    turned = np.asarray(sheet.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=-1e4))
    return np.pad(np.where(turned < 0, table, turned), 60, constant_values=table).astype(np.float32)


@pytest.mark.parametrize("table", [20.0, 90.0, 250.0])
@pytest.mark.parametrize("degrees", [-20, 8])
def test_a_digit_on_a_turned_sheet_is_read(normalized, digits, degrees, table):
    near, found = [], []
    for image in digits[:10]:
        upright = Image.fromarray(drawn(image).astype(np.float32)).rotate(
            degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=210
        )
        photographed = on_turned_sheet(image, degrees, table)
        near.append(np.abs(normalized(photographed) - normalized(np.asarray(upright))).mean() < 6)
        found.append(len(found_in()(photographed).boxes) == 1)
    assert np.mean(near) >= 0.9
    assert np.mean(found) >= 0.9


@pytest.mark.parametrize("table", [20.0, 90.0, 250.0])
@pytest.mark.parametrize("degrees", [0, 8, 20])
def test_a_blank_turned_sheet_has_no_digit(degrees, table):
    assert not len(found_in()(on_turned_sheet(np.zeros((28, 28), np.float32), degrees, table)).boxes)


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("holes", [1, 2])
def test_a_thick_0_or_8_is_no_sheet(light, holes):
    """They are about as large and as convex as one."""
    y, x = np.mgrid[:200, :200] - 100.0
    inked = np.hypot(y / 70, x / 50) < 1
    for at in (0,) if holes == 1 else (-32, 32):
        inked &= np.hypot((y - at) / (60 / holes), x / 26) > 1
    image = np.where(inked, 40.0, 220.0) if not light else np.where(inked, 220.0, 40.0)
    (box,) = found_in()(image.astype(np.float32)).boxes.numpy()
    np.testing.assert_allclose(box, [0.15, 0.85, 0.25, 0.75], atol=0.02)


@pytest.mark.parametrize("width", [0.2, 0.4])
def test_a_bright_spot_that_fades_is_no_digit(width):
    y, x = np.mgrid[:200, :300] / 200 - 0.5
    light = 40 + 180 * np.exp(-(y**2 + (x - 0.3) ** 2) / 2 / width**2)
    assert not len(found_in()(light.astype(np.float32)).boxes)


@pytest.mark.parametrize(("side", "line"), [(112, 1), (140, 1), (280, 2), (300, 3), (560, 4)])
def test_a_digit_is_found_in_a_thin_frame_on_the_edge_of_the_image(normalized, digits, side, line):
    for image in digits[:5]:
        framed = np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC)).clip(0, 255)
        expected = normalized(framed)
        framed[:line] = framed[-line:] = framed[:, :line] = framed[:, -line:] = 255
        assert np.abs(normalized(framed) - expected).mean() < 6
        assert len(found_in()(framed).boxes) == 1


def _stretched(image):
    """Scales the strongest ink to 255; in some stored digits it is 254."""
    return np.round(255 * image / image.max())

import json

import numpy as np
import pytest

from serving.manifest import MOST_DIGITS, PROBABILITIES, read
from serving.protocols.predict import Content, format_images


@pytest.mark.parametrize(
    ("digits", "notice"),
    [
        (0, "There is no digit here, or it is too small."),
        (1, None),
        (3, "There are 3 digits here."),
        (MOST_DIGITS, "There are at least 16 digits here."),
    ],
)
def test_the_number_of_digits_is_said_unless_it_is_one(version, digits, notice):
    manifest = read(version)
    outputs = {PROBABILITIES: np.full((1, len(manifest.labels)), 1 / len(manifest.labels), np.float32)}
    boxes = [np.zeros((digits, 4), np.float32)]
    content = Content(["a.png"], None, outputs, boxes, None, 1, explain=False, segments=False)
    (prediction,) = json.loads(format_images(content, manifest))["predictions"]
    assert (prediction["digits"], prediction.get("notice")) == (digits, notice)

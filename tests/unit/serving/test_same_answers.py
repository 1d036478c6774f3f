"""Photographs that are scaled down while they are decoded get the answers of all of their pixels.

The images are test images that the packaged nets bring along, enlarged to photographs with some grain.
"""

import io

import numpy as np
import pytest
from PIL import Image

from serving import image_files, package
from serving.manifest import PROBABILITIES, RGBA
from serving.model import open_model

SIDE = 1152
FORMS = {
    "JPEG": {"quality": 90},
    "progressive": {"format": "JPEG", "quality": 90, "progressive": True},
    "PNG": {"compress_level": 1},
    "WEBP": {"quality": 80},
}


@pytest.fixture(scope="module", params=["mnist", "cifar10"])
def model(request):
    return open_model(package.pretrained() / request.param)


def photograph(image, form):
    """Returns a file with an image that was enlarged to a square."""
    large = Image.fromarray(image.squeeze()).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    grain = np.random.default_rng(0).normal(0, 4, np.shape(large))
    file = io.BytesIO()
    pixels = Image.fromarray((np.asarray(large, "float32") + grain).clip(0, 255).astype("uint8"))
    pixels.save(file, **{"format": form, **FORMS[form]})
    return file.getvalue()


def probabilities(model, image):
    return model.predict(image[None])[PROBABILITIES][0]


@pytest.mark.parametrize("form", FORMS)
def test_scaled_photographs_get_the_answers_of_all_their_pixels(model, form):
    for image in model.samples.inputs:
        file = photograph(image, form)
        quick = image_files.decode(file, "a", side=model.side, grey=model.manifest.is_grey)
        with Image.open(io.BytesIO(file)) as whole:
            every_pixel = np.asarray(whole.convert("RGBA"))
        assert quick.size < every_pixel.size / 2
        (expected,) = model.conversion.run([model.manifest.input.name], {RGBA: every_pixel})
        found, wanted = probabilities(model, model.to_input(quick)), probabilities(model, expected)
        assert found.argmax() == wanted.argmax()
        np.testing.assert_allclose(found, wanted, atol=0.003)

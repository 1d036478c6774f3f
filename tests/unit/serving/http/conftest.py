"""The endpoint as an ASGI app over the version made by hand."""

import numpy as np
import pytest

from serving.engine.settings import Settings
from serving.http.app import make_app
from tests.endpoint import IMAGES, LoadedClient


@pytest.fixture
def settings(version):
    return Settings(models=version.parents[1], poll=0.05)


@pytest.fixture
def client(settings):
    with LoadedClient(make_app(settings), raise_server_exceptions=False) as made:
        yield made


@pytest.fixture
def expected(kernel):
    logits = IMAGES.reshape(3, 12) @ kernel
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)

"""The gRPC server next to the app over the version made by hand."""

import pytest

from serving.engine.settings import Settings

from .served import Served


@pytest.fixture
def settings(version):
    return Settings(models=version.parents[1], poll=0.05)


@pytest.fixture
def served(settings):
    with Served(settings) as made:
        yield made

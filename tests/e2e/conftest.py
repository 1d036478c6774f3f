"""Fixtures shared by the end-to-end tests."""

import pytest

from tests.endpoint import Endpoint


@pytest.fixture(scope="session")
def shared_endpoint(repository, tmp_path_factory):
    """An endpoint for tests that leave its repository as it is and read no log or counter that others change."""
    with Endpoint(repository, tmp_path_factory.mktemp("shared") / "log") as started:
        yield started

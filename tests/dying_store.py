"""A store that fails forever after some operations, which leaves it as a kill of its writer would."""

from contextlib import contextmanager

import pytest

from pipelines.core.errors import UserError
from pipelines.core.url import Url

MESSAGE = "the store is gone."


@contextmanager
def dying(operations):
    """Lets all operations that change a store fail after the first ones.

    Args:
        operations: number of those that succeed.

    Yields:
        A list that grows with each failure.
    """
    left, failures = iter(range(operations)), []

    def mortal(operation):
        def run(*words):
            if next(left, None) is None:
                failures.append(words)
                raise UserError(MESSAGE)
            return operation(*words)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in ("put", "copy", "create", "write_bytes", "unlink", "rmtree"):
            patch.setattr(Url, name, mortal(getattr(Url, name)))
        yield failures

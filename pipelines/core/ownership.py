"""Ownership of a folder in a bucket, among commands that write it.

Buckets have no locks, and a machine that is cut off goes on. Whoever trains a run therefore puts its name next to it,
in an object, and uploads only while the name is its own: the last one that has claimed the run wins. A command claims
it after all its checks, because one that is refused must not end the uploads of another.
"""

import os
import platform
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.core.errors import UserError
from pipelines.core.url import Url

# The object next to a run that names its owner, in a form that no run has.
OWNER = ".{}.owner"
# How the local copies in use are claimed.
_claims: dict[Path, Callable[[], None]] = {}


class TakenOverError(UserError):
    """Another command has claimed the same run."""


class Owner:
    """This process as the owner of a folder.

    Args:
        url: the folder.
    """

    def __init__(self, url: Url) -> None:
        self._url = url
        self._file = url.with_name(OWNER.format(url.name))
        self._name = f"process {os.getpid()} on {platform.node()}\n{uuid.uuid4()}"

    def claim(self) -> None:
        """Takes the folder over from its owner, if it has one."""
        self._file.write_bytes(self._name.encode())

    def check(self) -> None:
        """Raises a `TakenOverError` if another process has claimed the folder."""
        try:
            owner = self._file.read_text()
        except FileNotFoundError:
            owner = "another command, which has ended"
        if owner != self._name:
            raise TakenOverError(
                f"{self._url} has been taken over by {owner.splitlines()[0]}: nothing more is uploaded from here. "
                "Stop this command, or the other one and then resume this one."
            )

    def release(self) -> None:
        """Leaves the folder without an owner; raises a `TakenOverError` if it has another one."""
        self.check()
        self._file.unlink()


@contextmanager
def claimable(folder: Path, take: Callable[[], None]) -> Iterator[None]:
    """Lets `claim` call a function for a local copy, and for what is in it, until the block ends.

    Args:
        folder: the copy.
        take: claims the folder that it is a copy of, unless that is done.
    """
    _claims[folder] = take
    try:
        yield
    finally:
        del _claims[folder]


def claim(path: Path) -> None:
    """Claims the folder in a bucket that a path is a local copy of, or is in; to be called before the first change.

    Files that another command has written since they were downloaded are replaced. Does nothing for any other path.

    Raises:
        UserError: the store cannot be used, or another command has created the folder since this one started.

    Example:
        with synced(Url("s3://bucket/runs/demo"), owned=True) as run:
            check(run)
            claim(run)
    """
    for folder, take in _claims.items():
        if path.is_relative_to(folder):
            take()

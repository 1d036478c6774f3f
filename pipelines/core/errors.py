"""What ends a command with one message, no stack trace and a non-zero exit status: a user's mistake, or wish."""

import difflib
import errno
import os
import signal
from collections.abc import Iterable, Iterator

# The last is what a limit on the size of files answers (`ulimit -f`).
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """What happened, what was expected and what to do; the command line prints it and exits with status 2."""


class StoppedError(Exception):
    """What was stopped by a signal, in order, and how to go on; the command line prints it.

    Args:
        message: for the user.
        number: of the signal; the exit status is 128 more, as in a shell.
    """

    def __init__(self, message: str, number: signal.Signals) -> None:
        super().__init__(message)
        self.number = number


def disk_is_full(error: BaseException) -> str:
    """In one line what said that there is no room to write to, or nothing if that is not what happened.

    Args:
        error: what was raised; what it came from is looked at too.

    Example:
        disk_is_full(OSError(28, "No space left on device"))  # "[Errno 28] No space left on device"
    """
    links = list(_chain(error))
    # Frameworks hide the error number: h5py and TensorFlow pass on only the text, in errors of their own.
    full = any(
        (isinstance(link, OSError) and link.errno in FULL) or any(os.strerror(number) in str(link) for number in FULL)
        for link in links
    )
    text = str(links[-1]).strip()
    return (text.splitlines()[0] if text else type(links[-1]).__name__) if full else ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def unknown(kind: str, name: str, choices: Iterable[str]) -> UserError:
    """The error for a name that is not among `choices`, with the nearest one proposed.

    Args:
        kind: what the name stands for, in the singular ("recipe").
        name: what was given.
        choices: every name that would have been right.

    Returns:
        A `UserError`, to be raised by the caller.
    """
    choices = sorted(choices)
    close = nearest(name, choices)
    hint = f"Did you mean '{close}'? " if close else ""
    return UserError(f"there is no {kind} '{name}'. {hint}Choices: {', '.join(choices)}.")


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice that is most like `name`, or None if none is like it.

    Example:
        nearest("trian", ["train", "export"])  # "train"
    """
    close = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.5)
    return close[0] if close else None

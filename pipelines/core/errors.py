"""Errors that end a command with one message and no stack trace: user errors, lost processes and signals."""

import difflib
import errno
import os
import re
import signal
from collections.abc import Iterable, Iterator
from typing import ClassVar

# EFBIG is the error of a limit on file sizes (`ulimit -f`).
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """An error that the user can fix. It says what happened, what was expected and what to do; the exit status is 2."""

    status: ClassVar[int] = 2


class LostHostError(UserError):
    """Another process that trains the same run has died or cannot be reached; the command can be repeated as it is."""

    status = os.EX_TEMPFAIL


class StoppedError(BaseException):
    """A signal has ended the command in an orderly way; the message says how to continue.

    No `Exception`, like `KeyboardInterrupt`: it may be raised anywhere, for example while a package is imported that
    tries another one and goes on whatever the error.

    Args:
        message: message for the user.
        number: number of the signal; the exit status is 128 more, as in a shell.
    """

    def __init__(self, message: str, number: signal.Signals) -> None:
        super().__init__(message)
        self.number = number


def disk_is_full(error: BaseException) -> str:
    """Returns a one-line message if a full disk caused an error, else an empty string.

    Args:
        error: the error; its causes are checked too.

    Example:
        disk_is_full(OSError(28, "No space left on device"))  # "[Errno 28] No space left on device"
    """
    links = list(chain(error))
    # h5py and TensorFlow raise their own errors, which carry the message but not the errno.
    full = any(
        (isinstance(link, OSError) and link.errno in FULL) or any(os.strerror(number) in str(link) for number in FULL)
        for link in links
    )
    return reason(links[-1]) if full else ""


def reason(error: BaseException) -> str:
    """Returns the message of a framework's error in one line, without the names of its internals.

    Args:
        error: the error; one without a message is named.

    Example:
        reason(error)  # "part-00000-of-00001; No space left on device", without "{{function_node ...}}" and "[Op:...]"
    """
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*|\[\[.*", "", " ".join(str(error).split()))
    return text[:400].strip(" .") or type(error).__name__


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an error, then its causes, back to the first."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


# More names than these are listed only if none of them is near the one that was asked for.
LISTED = 15


def unknown(kind: str, name: str, choices: Iterable[str]) -> UserError:
    """Returns the error for an unknown name, which suggests the nearest one.

    Args:
        kind: the kind of thing, in the singular ("recipe").
        name: the unknown name.
        choices: the valid names.

    Returns:
        A `UserError` for the caller to raise.
    """
    choices = sorted(choices)
    close = nearest(name, choices)
    hints = [f"Did you mean '{close}'?"] if close else []
    if not close or len(choices) <= LISTED:
        hints.append(f"Choices: {', '.join(choices)}.")
    return UserError(f"there is no {kind} '{name}'. {' '.join(hints)}")


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Returns the choice that is most similar to `name`, or None if none is similar.

    Example:
        nearest("trian", ["train", "export"])  # "train"
    """
    close = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.5)
    return close[0] if close else None

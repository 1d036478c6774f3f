"""A user's mistake: one message, no stack trace, a non-zero exit status."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """What happened, what was expected and what to do; the command line prints it and exits with status 2."""


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

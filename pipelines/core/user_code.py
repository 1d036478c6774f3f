"""The user's own functions, named on the command line as `module:function`."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.core.errors import UserError


def is_function(word: str) -> bool:
    """Returns whether a word names a function, such as `mynets:small`."""
    return ":" in word


def function(word: str) -> Callable[..., Any]:
    """Imports a function; modules in the current folder are found too, as by `python -m`.

    Args:
        word: `module:function`, such as `mynets:small` or `package.module:function`.

    Raises:
        UserError: there is no such module or function, or its module raises an error.

    Example:
        function("math:sqrt")(9)  # 3.0
    """
    module, _, name = word.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f"there is no module {error.name}, for {word}. Run the command in the folder of {module}.py, or install it."
        ) from error
    except Exception as error:
        raise UserError(
            f"the module {module} cannot be imported: {type(error).__name__}: {error}. The command "
            f"`python -c 'import {module}'` shows where."
        ) from error
    if (found := getattr(imported, name, None)) is None:
        own = sorted(key for key, value in vars(imported).items() if getattr(value, "__module__", "") == module)
        has = f"It has: {', '.join(own)}." if own else "Define it there."
        raise UserError(f"the module {module} has no function {name}. {has}")
    if not callable(found):
        raise UserError(f"{word} is not a function: it is {type(found).__name__}. Name a function.")
    return found

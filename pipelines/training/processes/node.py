"""One of many tasks that a process performs one after the other, here or on a node of a cluster."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.core import frameworks
from pipelines.core.executor import JobError


@contextmanager
def one_of_many(folder: Path, plan: str) -> Iterator[None]:
    """Loads the frameworks for a task, and at its end frees the memory that they keep for it.

    Args:
        folder: the folder of the command, in which all machines write.
        plan: name of the file with its plan.

    Raises:
        JobError: this machine lacks the folder.

    Example:
        with one_of_many(Path("/shared/searches/demo"), SEARCH_FILE.name):
            train(task)
    """
    if not (folder / plan).exists():
        raise JobError(f"there is no folder {folder}, in which all machines write. Share it among them.")
    frameworks.load()
    import keras

    try:
        yield
    finally:
        keras.utils.clear_session()
        gc.collect()

"""The plan of a folder: a file that fixes the work in it, so that the same command resumes it and any other is refused.

The file also stands for the folder's lock.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pipelines.core.errors import UserError
from pipelines.core.files import create_text, file_lock
from pipelines.core.frozen import Frozen, flat, read

Plan = TypeVar("Plan", bound=Frozen)


@dataclass(frozen=True)
class PlanFile(Generic[Plan]):
    """A kind of plan and its file.

    Args:
        name: name of the file.
        kind: pydantic model of the plan.
        difference: says in which fields a requested plan differs from the stored one; "" if it does not.
        another: error about a folder that holds another plan, with `{folder}` and `{difference}`.
        foreign: error about a folder that holds something else, with `{folder}`.
        busy: error about a folder that another process has locked, with `{folder}`.
        before_work: folders that may exist before the work has begun.

    Example:
        SEARCH.keep(plan, folder)
        with SEARCH.locked(folder):
            ...
    """

    name: str
    kind: type[Plan]
    difference: Callable[[Plan, Plan], str]
    another: str
    foreign: str
    busy: str
    before_work: tuple[str, ...]

    def keep(self, plan: Plan, folder: Path) -> None:
        """Writes a plan into its folder, or checks that the plan there is the same.

        Raises:
            UserError: the folder holds another plan or something else.
        """
        path = folder / self.name
        if self._is_foreign(folder):
            raise UserError(self.foreign.format(folder=folder))
        if not path.exists():
            # Of two commands that start at the same time, the second one finds the plan of the first.
            with suppress(FileExistsError):
                create_text(path, plan.model_dump_json(indent=2) + "\n")
                return
        if difference := self.difference(read(path, self.kind), plan):
            raise UserError(self.another.format(folder=folder, difference=difference))

    def _is_foreign(self, folder: Path) -> bool:
        """Returns whether a folder holds anything but no plan; one that is being written does not count."""
        if not folder.is_dir():
            return folder.exists()
        names = [path.name for path in folder.iterdir() if not path.match(f".{Path(self.name).stem}-????????.*")]
        return bool(names) and self.name not in names

    def forget(self, folder: Path) -> None:
        """Removes the plan and the logs of work that never began, and the folder if that leaves it empty."""
        (folder / self.name).unlink(missing_ok=True)
        for name in self.before_work:
            shutil.rmtree(folder / name, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()

    def locked(self, folder: Path) -> AbstractContextManager[None]:
        """Locks the folder, which has a plan, until the block ends or the process dies.

        Raises:
            UserError: another process holds the lock.
        """
        return file_lock(folder / self.name, self.busy.format(folder=folder))


def changes(stored: Frozen, requested: Frozen) -> Iterator[tuple[str, Any, Any]]:
    """Yields the dotted name of each field with another value, the stored value and the requested one.

    Fields that only the stored data has, because it is older, do not count.
    """
    before = flat(stored)
    for name, now in flat(requested).items():
        if before.get(name) != now:
            yield name, before.get(name), now

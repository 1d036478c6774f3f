"""Local copies of objects at a URL: folders of runs, studies and searches, uploaded while they are written; and files.

A run is written on a disk of the machine that trains it. Every few seconds, a thread uploads the files that have
changed, in the order in which they were written: record and checkpoint after all others, and the state of a search at
the end. The bucket therefore holds what a kill could have left on a disk, and work that is resumed starts from there.

Of several commands that train the same run, only its owner uploads; see `pipelines.core.ownership`.
"""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pipelines.core.errors import StoppedError, UserError, disk_is_full
from pipelines.core.executor import JobError
from pipelines.core.ownership import Owner, TakenOverError, claimable
from pipelines.core.url import Location, Stored, Url, fetch
from serving import stores

PERIOD = 5.0
"""Seconds between two uploads of changed files."""
LATE = ("checkpoint", "run.json", "oracle.json")
"""Files or folders that are uploaded after all others, one after the other, because they state how far a run or a
search is, and thus what the others hold. A record must not count steps that no checkpoint holds."""
# The blocks of `synced` that are running.
_copies: "list[_Sync]" = []


class _Stamp(NamedTuple):
    """Properties of a file that change with its content, but not with its name."""

    changed: int
    size: int
    inode: int


class _Sync:
    """Uploads the changes of a local file or folder.

    Args:
        local: the file or folder, in its own folder; it may not exist yet.
        url: its place in the bucket.
        owned: whether changes wait until it is claimed.
    """

    def __init__(self, local: Path, url: Url, owned: bool) -> None:
        self.local = local
        self.url = url
        self._owner = Owner(url) if owned else None
        self._uploads = not owned
        self._found: dict[Path, Stored] = {}
        self._sent: dict[str, _Stamp] = {}
        self._missed: set[str] = set()
        self._pulled: tuple[str, ...] = ()
        self._busy, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._follow, name="upload", daemon=True)

    def start(self) -> None:
        """Downloads the existing files, and starts to upload changes."""
        self._download()
        self._thread.start()

    def claim(self) -> None:
        """Takes an owned folder over, downloads what has changed meanwhile, and uploads changes from now on.

        Raises:
            UserError: the store cannot be used, or the folder was missing at the start and is there now.
        """
        with self._busy:
            if self._uploads or self._owner is None:
                return
            if not self._found and self._stored(self.url, self.local):
                raise UserError(
                    f"another command has created {self.url} since this one started. Name another place, or stop the "
                    "other command and repeat this one."
                )
            self._owner.claim()
            self._download()
            self._uploads = True

    def finish(self) -> None:
        """Uploads the last changes, and removes the objects of files that were removed locally.

        Raises:
            UserError: the store cannot be used, or another command has taken over the run.
        """
        if self._thread.ident is None:
            # Nothing, or not everything, was downloaded.
            return
        self._ended.set()
        self._thread.join()
        if not self._uploads:
            # The command was refused.
            return
        self.push()
        self._check_owner()  # again: the upload may have taken minutes
        self._remove(self._gone())
        if self._owner:
            self._owner.release()

    def push(self) -> None:
        """Uploads the files that have changed since the last call; an error leaves the rest to the next call.

        Files that were gone at the last call, too, such as the weights of a trial that has ended, are removed.

        Raises:
            UserError: the store cannot be used, or another command has taken over the run.
        """
        if not self._uploads:
            return
        self._check_owner()
        with self._busy, tempfile.TemporaryDirectory(dir=self.local.parent, prefix=".upload-") as folder:
            # The last ones are linked first, and all late ones before the others are listed: training continues
            # meanwhile, and newer versions would refer to files that are not uploaded yet.
            late = [[*self._kept(name, Path(folder))] for name in reversed(LATE)]
            others = [(self._name(path), path) for path in _files(self.local) if not self._is_late(path)]
            for files in (others, *reversed(late)):
                for name, path, stamp in _by_age(files):
                    self._upload(name, path, stamp)
        # Not at once: while a checkpoint is replaced, it has no file for a moment.
        before, self._missed = self._missed, self._gone()
        self._remove(self._missed & before)

    def pull(self, folder: Path) -> None:
        """Replaces a folder in the local one by its state in the bucket."""
        with self._busy:
            url, aside = self.place(folder), folder.with_name(f".{folder.name}")
            shutil.rmtree(aside, ignore_errors=True)
            fetch([(one.url, path) for path, one in self._stored(url, aside).items()])
            # From here on, files are missing, and the last upload must not remove their objects if a signal comes.
            self._pulled = (f"{self._name(folder)}/",)
            shutil.rmtree(folder, ignore_errors=True)
            if aside.exists():
                aside.rename(folder)
            self._sent = {name: stamp for name, stamp in self._sent.items() if not name.startswith(self._pulled)}
            self._note(_files(folder))
            self._pulled = ()

    def place(self, path: Path) -> Url:
        """Returns the URL of a file or folder in the local one."""
        return self.url.parent / self._name(path)

    def message(self, error: UserError | OSError) -> str:
        """Returns the message of an error of an upload; of one of the system, such as a full disk, in a sentence."""
        if isinstance(error, UserError):
            return str(error)
        return f"{self.url} cannot be uploaded from {tempfile.gettempdir()}: {error.strerror or error}."

    def _check_owner(self) -> None:
        if self._owner:
            self._owner.check()

    def _download(self) -> None:
        """Downloads what has changed in the bucket since the last call."""
        stored = self._stored(self.url, self.local)
        changed = [path for path, one in stored.items() if self._found.get(path) != one or not path.exists()]
        fetch([(stored[path].url, path) for path in changed])
        for path in self._found.keys() - stored.keys():
            path.unlink(missing_ok=True)
        for config in [*self.local.rglob("config.json")]:
            if not config.with_name("run.json").exists():
                # A run is created as a whole, but the upload of this one ended before its record.
                shutil.rmtree(config.parent)
        self._note([path for path in stored if path.exists()])
        self._found = stored

    @staticmethod
    def _stored(url: Url, local: Path) -> dict[Path, Stored]:
        """Returns the objects of a folder, without hidden ones, by their local paths."""
        below = {PurePosixPath(one.url.text[len(url.text) + 1 :]): one for one in url.files()}
        return {
            local / path: one for path, one in below.items() if not any(part.startswith(".") for part in path.parts)
        }

    def _note(self, files: list[Path]) -> None:
        """Notes that the bucket has these files, which were downloaded."""
        now = time.time_ns()
        for path in files:
            # Files are compared by age, and the order of downloads has nothing to do with that.
            os.utime(path, ns=(now, now))
        self._sent.update({self._name(path): _stamp(path) for path in files})

    def _gone(self) -> set[str]:
        missing = self._sent.keys() - {self._name(path) for path in _files(self.local)}
        return {name for name in missing if not name.startswith(self._pulled)}

    def _remove(self, names: set[str]) -> None:
        for name in names:
            (self.url.parent / name).unlink()
            del self._sent[name]

    def _upload(self, name: str, path: Path, stamp: _Stamp) -> None:
        if self._sent.get(name) == stamp:
            return
        # The previous checkpoint was the newest one, which the bucket has.
        same = next((one for one, sent in self._sent.items() if sent == stamp), None)
        if same:
            (self.url.parent / same).copy(self.url.parent / name)
        else:
            try:
                (self.url.parent / name).put(path)
            except UserError:
                if path.exists():
                    raise
                # Trials of a search remove their weights at the end.
                return
        self._sent[name] = stamp

    def _kept(self, late: str, folder: Path) -> Iterator[tuple[str, Path]]:
        """Links late files, so that they stay what they are."""
        for number, path in enumerate(_files(self.local)):
            link = folder / f"{late}-{number}"
            if late in path.relative_to(self.local).parts:
                with suppress(FileNotFoundError):
                    os.link(path, link)
                    yield self._name(path), link

    def _is_late(self, path: Path) -> bool:
        return not {*LATE}.isdisjoint(path.relative_to(self.local).parts)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.local.parent).as_posix()

    def _follow(self) -> None:
        failed = False
        while not self._ended.wait(PERIOD):
            try:
                self.push()
                failed = False
            except TakenOverError as error:
                sys.stderr.write(f"{error}\n")
                return
            except FileNotFoundError:
                # A file or folder was removed while it was looked at.
                continue
            except (UserError, OSError) as error:
                if not failed:
                    sys.stderr.write(f"{self.message(error)} The upload is tried again.\n")
                failed = True


@contextmanager
def synced(place: Location, *, owned: bool = False) -> Iterator[Path]:
    """Yields a folder or a file as a local one: a path as it is; of a URL, a copy whose changes are uploaded.

    Messages name the URL while the block runs. Nothing is downloaded or uploaded if nothing is there.

    Args:
        place: the folder of a run, a study or a search, which may not exist yet; or a file.
        owned: whether all of the folder is going to be written. At a URL, nothing is uploaded before it is claimed
            (`pipelines.core.ownership.claim`, or the end of the block), and whatever writes it elsewhere uploads
            nothing more from then on.

    Raises:
        UserError: the store cannot be used, the disk is full, or another command has taken over the folder. Files that
            could not be uploaded are kept, and the message says where.

    Example:
        with synced(Url("s3://bucket/runs/demo")) as run:
            evaluate(run)
    """
    if isinstance(place, Path):
        yield place
        return
    root = Path(tempfile.mkdtemp(prefix="highway-"))
    sync = _Sync(root / place.name, place, owned)
    failure: BaseException | None = None
    _copies.append(sync)
    try:
        with renamed(root, place.parent), claimable(sync.local, sync.claim):
            sync.start()
            yield sync.local
            sync.claim()
    except (Exception, StoppedError) as error:
        failure = error
        raise
    finally:
        _copies.remove(sync)
        try:
            sync.finish()
        except (UserError, OSError) as error:
            before = f"{failure} In addition, " if failure else ""
            store = stores.of(place.text)
            advice = f", for example with: {store.upload} {sync.local} {place}" if store else "."
            after = "" if isinstance(error, TakenOverError) else f" Upload it{advice}"
            # Other tasks would find the disk full too.
            kind = JobError if disk_is_full(error) else UserError
            text = f"{before}{sync.message(error)} The newest files are on this machine only, in {sync.local}.{after}"
            raise kind(text) from error
        else:
            shutil.rmtree(root, ignore_errors=True)


def place_of(path: Path) -> Location:
    """Returns where other machines find a file or folder: its URL within a block of `synced`, otherwise the path.

    Example:
        with synced(Url("s3://bucket/studies/bias")) as study:
            place_of(study / "runs")  # s3://bucket/studies/bias/runs
    """
    return next((copy.place(path) for copy in _copies if path.is_relative_to(copy.local)), path)


def refresh(folder: Path) -> None:
    """Downloads what another machine has written to `place_of(folder)`; does nothing for a folder that all share.

    Raises:
        UserError: the store cannot be used.
    """
    for copy in _copies:
        if folder.is_relative_to(copy.local):
            copy.pull(folder)


@contextmanager
def fetched(place: Location) -> Iterator[Path]:
    """Yields a file as a local one: a path as it is; of a URL, a copy that lasts until the block ends.

    Args:
        place: the file.

    Raises:
        UserError: there is no such object, or the store cannot be used.

    Example:
        with fetched(Url("s3://bucket/houses.csv")) as path:
            read(path)
    """
    if isinstance(place, Path):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="highway-") as root, renamed(Path(root), place.parent):
        path = Path(root) / place.name
        fetch([(place, path)])
        yield path


@contextmanager
def renamed(local: Path, place: Url) -> Iterator[None]:
    """Prints and raises messages with a URL in place of a local path, until the block ends.

    Args:
        local: the path.
        place: what it stands for.
    """

    def shown(text: str) -> str:
        return text.replace(str(local), str(place))

    with redirect_stdout(_Renaming(sys.stdout, shown)), redirect_stderr(_Renaming(sys.stderr, shown)):
        try:
            yield
        except (UserError, StoppedError) as error:
            error.args = (shown(str(error)), *error.args[1:])
            raise


class _Renaming:
    """An output that replaces a path in the text written to it; in all else the output itself."""

    def __init__(self, output: Any, change: Any) -> None:
        self._output = output
        self._change = change

    def write(self, text: str) -> int:
        # Ray's output returns nothing.
        self._output.write(self._change(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


def _files(place: Path) -> list[Path]:
    """Returns a file, or all files in a folder, without hidden ones: those that are being written have such names."""
    if place.is_file():
        return [place]
    found = (path for path in place.rglob("*") if path.is_file())
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(place).parts)]


def _stamp(path: Path) -> _Stamp:
    status = path.stat()
    return _Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def _by_age(files: list[tuple[str, Path]]) -> list[tuple[str, Path, _Stamp]]:
    """Returns the files that still exist with their stamps, the one that was written first before the others."""
    found = []
    for name, path in files:
        with suppress(FileNotFoundError):
            found.append((name, path, _stamp(path)))
    return sorted(found, key=lambda one: one[2].changed)

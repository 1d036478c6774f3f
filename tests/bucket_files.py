"""The files that a test in a bucket leaves on the disk, and copies of those in the bucket."""

from pipelines.core.url import Url, fetch


def temporary(tmp_path):
    """The names of this program's temporary files."""
    return [path.name for path in (tmp_path / "temporary").glob("highway-*")]


def downloaded(url, folder):
    """A copy of a run in a bucket."""
    fetch([(one.url, folder / str(one.url).removeprefix(f"{url}/")) for one in Url(url).files()])
    return folder

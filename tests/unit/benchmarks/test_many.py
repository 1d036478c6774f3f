import io
import os

from rich.console import Console

from benchmarks import many, memory
from pipelines.inference.inputs import Listing, sources
from pipelines.inference.progress import JobProgress, Total


def test_memory_is_sampled_at_each_line_of_progress(tmp_path):
    said = io.StringIO()
    listing = Listing([])
    with JobProgress(Console(file=said), Total([], listing), 0) as shown:
        for _ in range(2):
            shown.add(32_768, 1)
            shown.saved()
    points = list(memory._sampled(os.getpid(), ["something else\n", *said.getvalue().splitlines(keepends=True)]))
    assert [pictures for pictures, _ in points] == [32_768, 65_536]
    assert all(10 < resident < 100_000 for _, resident in points)
    memory.draw(points, tmp_path / "memory.png", "the machine")
    assert (tmp_path / "memory.png").stat().st_size > 1000


def test_a_tar_file_has_as_many_pictures_as_are_asked_for(tmp_path):
    many.pack(tmp_path / "a.tar", [b"1", b"2"], 5)
    found = list(Listing(sources([str(tmp_path / "a.tar")], None)).fetched())
    assert [picture.content for picture in found] == [b"1", b"2", b"1", b"2", b"1"]

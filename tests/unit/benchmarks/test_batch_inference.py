from benchmarks import batch_inference
from pipelines.inference.inputs import Listing, sources


def test_a_tar_file_has_the_requested_number_of_images(tmp_path):
    batch_inference.pack(tmp_path / "a.tar", [b"1", b"2"], 5)
    found = list(Listing(sources([str(tmp_path / "a.tar")], None)).fetched())
    assert [image.content for image in found] == [b"1", b"2", b"1", b"2", b"1"]

import hashlib

import pytest

from serving import package
from serving.errors import ModelError
from serving.files import digest, digests, verify
from serving.manifest import read


def test_digest_is_that_of_the_whole_content(tmp_path):
    content = bytes(range(256)) * 9000
    (tmp_path / "file").write_bytes(content)
    found = digest(tmp_path / "file")
    assert found.size == len(content)
    assert found.sha256 == hashlib.sha256(content).hexdigest()


def test_digests_are_of_all_files_but_the_manifest(version):
    assert digests(version) == read(version).files
    assert "manifest.json" not in digests(version)


def test_a_whole_version_is_accepted(version):
    verify(version, read(version))


@pytest.mark.parametrize("name", ["model.onnx", "labels.txt", "variables/variables.index"])
def test_one_changed_bit_is_found_and_named(version, name):
    content = bytearray((version / name).read_bytes())
    content[len(content) // 2] ^= 1
    (version / name).write_bytes(content)
    with pytest.raises(ModelError, match=rf"{name} is damaged: its SHA-256"):
        verify(version, read(version))


def test_a_cut_file_is_named(version):
    path = version / "model.onnx"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"model\.onnx is damaged: it has \d+ bytes"):
        verify(version, read(version))


def test_sizes_are_written_as_in_a_text(version):
    content = read(version)
    large = content.files["model.onnx"].model_copy(update={"size": 53_573})
    (version / "model.onnx").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"it has 1 byte, the manifest says 53,573\. Export"):
        verify(version, content.model_copy(update={"files": {"model.onnx": large}}))


def test_a_net_of_the_package_is_not_to_be_exported(version, monkeypatch):
    content = read(version)
    for name in ("labels.txt", "manifest.json"):
        (version / name).write_bytes(b"x")
    for pretrained, advice in ((version / "other", "Export the model"), (version.parents[1], "Install highway-keras")):
        monkeypatch.setattr(package, "pretrained", lambda found=pretrained: found)
        for check in (read, lambda folder: verify(folder, content)):
            with pytest.raises(ModelError, match=rf"is damaged: .*\. {advice}.* again"):
                check(version)


def test_a_missing_file_is_named(version):
    (version / "labels.txt").unlink()
    with pytest.raises(ModelError, match=r"labels\.txt is missing"):
        verify(version, read(version))

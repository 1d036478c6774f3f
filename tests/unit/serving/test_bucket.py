"""A repository in a bucket is copied version by version, and the copy holds complete versions only."""

import json
import shutil

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving import bucket, files, manifest, release, signature, stored_version
from serving.errors import ModelError

from .bucket_versions import MemoryBucket, files_of, make_version


@pytest.fixture
def remote(tmp_path):
    (tmp_path / "copy").mkdir()
    made = MemoryBucket(tmp_path / "copy")
    yield made
    made.clear()


@pytest.fixture
def reads(remote, monkeypatch):
    """The objects that were read."""
    found, read = [], type(remote.system).cat_file

    def counted(self, path, *arguments, **options):
        found.append(path.removeprefix("/bucket/models/"))
        return read(self, path, *arguments, **options)

    monkeypatch.setattr(type(remote.system), "cat_file", counted)
    return found


def test_a_version_exists_once_its_manifest_is_there(remote, content):
    first, second = make_version(content, 1), make_version(content, 2)
    remote.upload(first, "tiny/1")
    remote.upload(second, "tiny/2", count=3)
    assert remote.check().refused == {}
    assert remote.copied() == [1]
    assert files_of(remote.copy / "tiny" / "1") == first
    remote.upload(second, "tiny/2")
    remote.check()
    assert files_of(remote.copy / "tiny" / "2") == second


def test_a_number_that_is_too_large_is_refused(remote, content):
    remote.upload(make_version(content, 1), "tiny/1")
    remote.upload(make_version(content, 2**63), f"tiny/{2**63}")
    reason = remote.check().refused["tiny"][2**63]
    assert reason.startswith(f"a version's number is at most {2**63 - 1}")
    assert remote.copied() == [1]


def test_what_has_not_changed_is_not_read_again(remote, content, reads):
    remote.upload(make_version(content, 1), "tiny/1")
    remote.put("tiny/release.json", b'{"versions": [1]}')
    remote.check()
    assert set(reads) == remote.objects().keys()
    reads.clear()
    remote.check()
    assert reads == []
    # An endpoint that lost its report compares the manifests.
    remote.report = bucket.Report()
    remote.check()
    assert reads == ["tiny/release.json", "tiny/1/manifest.json"]


def test_a_large_file_is_read_in_pieces(remote, content, reads, monkeypatch):
    monkeypatch.setattr(stored_version, "PIECE", 10)
    made = make_version(content, 1)
    remote.upload(made, "tiny/1")
    remote.check()
    assert reads.count("tiny/1/model.onnx") == 5 == -(-len(made["model.onnx"]) // 10)
    assert files_of(remote.copy / "tiny" / "1") == made


@pytest.mark.parametrize("damage", ["shorter", "longer", "other", "missing"])
def test_a_damaged_upload_is_refused_until_it_is_mended(remote, content, reads, damage):
    made = make_version(content, 2)
    good = made["model.onnx"]
    remote.upload(make_version(content, 1), "tiny/1")
    remote.upload(made, "tiny/2")
    if damage == "missing":
        remote.remove("tiny/2/model.onnx")
    else:
        remote.put("tiny/2/model.onnx", {"shorter": good[:-1], "longer": good + b"!", "other": b"?" + good[1:]}[damage])
    reason = remote.check().refused["tiny"][2]
    assert reason.startswith("memory://bucket/models/tiny/2/model.onnx ")
    assert ("Upload it again" in reason) == (damage != "other")
    # Only a file of the right size is read at all.
    assert ("tiny/2/model.onnx" in reads) == (damage == "other")
    assert remote.copied() == [1]
    reads.clear()
    assert remote.check().refused["tiny"] == {2: reason}
    assert reads == []
    remote.put("tiny/2/model.onnx", good)
    assert remote.check().refused == {}
    assert remote.copied() == [1, 2]


def test_a_number_that_is_used_again(remote, content):
    old, new = make_version(content, 1), make_version(content, 1, seed=1)
    remote.upload(old, "tiny/1")
    remote.check()
    # Without the new manifest, the copy is what the manifest says.
    remote.upload(new, "tiny/1", count=3)
    assert remote.check().refused == {}
    remote.put("tiny/1/manifest.json", new["manifest.json"])
    remote.put("tiny/1/model.onnx", b"damaged")
    assert "model.onnx has 7 bytes" in remote.check().refused["tiny"][1]
    assert files_of(remote.copy / "tiny" / "1") == old
    remote.upload(new, "tiny/1")
    assert remote.check().refused == {}
    assert files_of(remote.copy / "tiny" / "1") == new


def test_the_newest_two_versions_are_copied_or_those_of_the_release(remote, content):
    for number in (1, 2, 3, 10):
        remote.upload(make_version(content, number), f"tiny/{number}")
    remote.check()
    assert remote.copied() == [3, 10]
    remote.put("tiny/release.json", b'{"versions": [1, 3], "labels": {"stable": 1}}')
    remote.check()
    assert remote.copied() == [1, 3]
    assert release.read(remote.copy / "tiny").labels == {"stable": 1}
    # Nothing takes the place of what is in service, and a release that cannot be read changes nothing.
    for content_of_release in (b'{"versions": [7]}', b"{"):
        remote.put("tiny/release.json", content_of_release)
        remote.check()
        assert {1, 3} <= set(remote.copied())
        assert (remote.copy / "tiny" / "release.json").read_bytes() == content_of_release
    remote.put("tiny/release.json", b'{"versions": [7]}')
    assert "tiny/7 does not exist, and release.json names it" in remote.check().refused["tiny"][7]
    remote.remove("tiny/release.json")
    remote.check()
    assert remote.copied() == [3, 10]
    assert not (remote.copy / "tiny" / "release.json").exists()


def test_what_is_removed_disappears_except_everything_at_once(remote, content):
    for name in ("cats", "tiny"):
        for number in (1, 2):
            remote.upload(make_version(content, number, name=name), f"{name}/{number}")
    remote.put("cats/release.json", b"{}")
    remote.check()
    # The other objects may take longer to remove.
    remote.remove("tiny/2/manifest.json")
    remote.remove("cats/")
    remote.check()
    assert remote.copied() == [1]
    assert not (remote.copy / "cats").exists()
    remote.remove("")
    assert remote.check().problem == "memory://bucket/models no longer has models"
    assert remote.copied() == [1]
    remote.upload(make_version(content, 2), "tiny/2")
    assert remote.check().problem == ""
    assert remote.copied() == [2]


def test_an_unreachable_bucket_changes_nothing(remote, content, monkeypatch):
    remote.upload(make_version(content, 1), "tiny/1")
    remote.upload({"manifest.json": b"{}"}, "tiny/2")
    before = remote.check()
    with monkeypatch.context() as patched:
        patched.setattr(type(remote.system), "find", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("reset")))
        after = remote.check()
    problem = "memory://bucket/models cannot be reached (ConnectionError: reset)"
    assert after == before.model_copy(update={"problem": problem})
    assert remote.copied() == [1]


def test_a_connection_that_breaks_is_tried_again(remote, content, monkeypatch):
    remote.upload(make_version(content, 1), "tiny/1")
    with monkeypatch.context() as patched:
        patched.setattr(type(remote.system), "cat_file", lambda *_, **__: (_ for _ in ()).throw(TimeoutError("slow")))
        reason = "memory://bucket/models/tiny/1 cannot be copied: TimeoutError: slow"
        assert remote.check().refused == {"tiny": {1: reason}}
        assert [path.name for path in remote.copy.iterdir()] == [".busy"]
    assert remote.check().refused == {}
    assert remote.copied() == [1]


def test_a_release_that_could_not_be_written_is_read_again(remote, content, monkeypatch):
    remote.upload(make_version(content, 1), "tiny/1")
    remote.put("tiny/release.json", b'{"versions": [1]}')
    remote.check()
    remote.upload(make_version(content, 2), "tiny/2")
    remote.put("tiny/release.json", b'{"versions": [2]}')
    with monkeypatch.context() as patched:
        patched.setattr(bucket, "_write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        assert "models/tiny cannot be copied (OSError: [Errno 28] No space left on device)" in remote.check().problem
    assert remote.check().problem == ""
    assert release.read(remote.copy / "tiny").versions == (2,)
    assert remote.copied() == [2]


def test_names_lead_nowhere_else(remote, content, tmp_path, monkeypatch):
    monkeypatch.setattr(signature, "MANIFEST", 3000)
    outside = make_version(content, 1)
    described = json.loads(outside["manifest.json"])
    described["files"]["../../../evil"] = described["files"]["model.onnx"]
    remote.upload({**outside, "manifest.json": json.dumps(described).encode()}, "outside/1")
    remote.upload(make_version(content, 1), "other/1")
    remote.upload({"manifest.json": b"{" * 5000}, "huge/1")
    remote.upload({"manifest.json": b""}, "empty/1")
    for prefix in ("../tiny/1", ".hidden/1", "/tiny/1", "tiny/01", "tiny/x", "tiny/-1", "lost+found/1", "tiny/1/2"):
        remote.upload(make_version(content, 1), prefix)
    reasons = {name: refused[1] for name, refused in remote.check().refused.items()}
    assert "files must be inside the folder" in reasons.pop("outside")
    assert "has the manifest of version 1 of model 'tiny'" in reasons.pop("other")
    assert "it has more than 3,000 bytes" in reasons.pop("huge")
    assert "is damaged" in reasons.pop("empty")
    assert reasons == {}
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".busy", "copy"]


def test_a_signature_is_copied_whenever_it_comes(remote, content):
    made, key = make_version(content, 1), Ed25519PrivateKey.generate()
    version, trusted = remote.copy / "tiny" / "1", [key.public_key().public_bytes_raw()]
    remote.upload(made, "tiny/1")
    remote.put("tiny/1/notes.txt", b"not in the manifest")
    remote.check()
    assert files_of(version) == made
    with pytest.raises(ModelError, match="is not signed"):
        manifest.read(version, trusted)
    remote.put("tiny/1/manifest.json.sig", key.sign(made["manifest.json"]))
    remote.check()
    files.verify(version, manifest.read(version, trusted), closed=True)


def test_a_damaged_copy_is_replaced_at_the_next_start(remote, content):
    made = make_version(content, 1)
    remote.upload(made, "tiny/1")
    remote.check()
    (remote.copy / "tiny" / "1" / "labels.txt").write_bytes(b"other\n")
    remote.report = bucket.Report()
    assert remote.check().refused == {}
    assert files_of(remote.copy / "tiny" / "1") == made


def test_what_an_endpoint_that_was_killed_left_is_removed(remote, content):
    (remote.copy / ".incoming-x" / "tiny" / "1").mkdir(parents=True)
    remote.upload(make_version(content, 1), "tiny/1")
    remote.check()
    assert sorted(path.name for path in remote.copy.iterdir()) == [".busy", "tiny"]


def test_a_url_must_be_of_a_repository(remote, content, monkeypatch):
    assert bucket.check(remote.url) == f"{remote.url} has no models yet: no MODEL/VERSION/manifest.json."
    remote.upload(make_version(content, 1), "tiny/1")
    assert bucket.check(remote.url) == ""
    for url, reason in (
        (f"{remote.url}/tiny", "is one model. Name the folder of all models"),
        (f"{remote.url}/tiny/1", "is one version of a model"),
        ("unknown://bucket", "cannot be found: Protocol not known: unknown. Check the URL"),
    ):
        with pytest.raises(bucket.BucketError, match=reason):
            bucket.check(url)
    for error, kind, reason in (
        (ImportError("Install s3fs"), bucket.BucketError, r'Install `pip install "highway-keras\[s3\]"`'),
        (FileNotFoundError("no such bucket"), bucket.BucketError, r"cannot be found: no such bucket. Check the URL"),
        (PermissionError("Forbidden."), bucket.BucketError, r"cannot be read: Forbidden. Give credentials"),
    ):
        monkeypatch.setattr("fsspec.url_to_fs", lambda *_, error=error, **__: (_ for _ in ()).throw(error))
        with pytest.raises(kind, match=reason):
            bucket.check("s3://bucket/models")
    monkeypatch.setattr("fsspec.url_to_fs", lambda *_, **__: (_ for _ in ()).throw(OSError("busy")))
    assert bucket.check("s3://bucket/models") == "s3://bucket/models cannot be reached (OSError: busy)."


def test_the_copy_is_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = bucket.copy_folder("s3://bucket/models")
    assert folder.is_relative_to(tmp_path / "highway-keras")
    assert bucket.read_report(folder) == bucket.Report(complete=False)
    seen = {"tiny/1": "digest"}
    bucket.write_report(folder, bucket.Report(problem="away", seen=seen))
    assert bucket.copy_folder("s3://bucket/models") == folder
    assert bucket.read_report(folder) == bucket.Report(complete=False, seen=seen)
    assert bucket.copy_folder("s3://bucket/others") != folder
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    assert bucket.copy_folder("s3://bucket/models") != folder
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(bucket.BucketError, match=r"Name a folder .* XDG_CACHE_HOME"):
        bucket.copy_folder("s3://bucket/models")


NUMBERS = st.integers(1, 4)
RELEASES = st.sampled_from([None, b"{}", b"{", b'{"versions": [2]}', b'{"versions": [1, 3]}'])
ACTIONS = st.one_of(
    # How many of the four files are uploaded, the manifest last.
    st.tuples(st.just("upload"), NUMBERS, st.integers(0, 2), st.sampled_from([1, 2, 3, 4, 4, 4])),
    st.tuples(st.just("remove"), NUMBERS),
    st.tuples(st.just("truncate"), NUMBERS),
    st.tuples(st.just("release"), RELEASES),
    # The number of reads after which the connection breaks.
    st.tuples(st.just("check"), st.sampled_from([None, None, None, 0, 1, 3, 6])),
    st.tuples(st.just("restart")),
)


class History:
    """A bucket, with the versions that were ever uploaded whole."""

    def __init__(self, remote, content):
        self.remote, self.content, self.whole = remote, content, []

    def upload(self, number, seed, count):
        made = make_version(self.content, number, seed)
        self.remote.upload(made, f"tiny/{number}", count)
        if count == len(made):
            self.whole.append(made)

    def remove(self, number):
        self.remote.remove(f"tiny/{number}/")

    def truncate(self, number):
        for path, content in self.remote.objects(f"tiny/{number}/model.onnx").items():
            self.remote.put(path, content[:-1])

    def release(self, content):
        self.remote.remove("tiny/release.json")
        if content is not None:
            self.remote.put("tiny/release.json", content)

    def restart(self):
        self.remote.report = bucket.Report()

    def check(self, reads):
        system = type(self.remote.system)
        read, left = system.cat_file, [reads]

        def fails(self, *arguments, **options):
            if left[0] == 0:
                raise OSError("reset")
            left[0] -= 1
            return read(self, *arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            if reads is not None:
                patch.setattr(system, "cat_file", fails)
            self.remote.check()
        if reads is None:
            self.is_followed()

    def is_followed(self):
        """Asserts the state of the copy after an undisturbed check."""
        listed = {int(path.split("/")[1]) for path in self.remote.objects("tiny/") if path.endswith("manifest.json")}
        assert bool(self.remote.report.problem) == (not listed and bool(self.remote.copied()))
        if not listed:
            return
        assert set(self.remote.copied()) <= listed
        newest = self.remote.objects(f"tiny/{max(listed)}/")
        newest = {path.removeprefix(f"tiny/{max(listed)}/"): content for path, content in newest.items()}
        if newest in self.whole and not self.remote.objects("tiny/release.json"):
            assert files_of(self.remote.copy / "tiny" / str(max(listed))) == newest
            assert max(listed) not in self.remote.report.refused.get("tiny", {})


def test_the_copy_holds_only_versions_that_were_uploaded_whole(remote, content):
    copied = []

    @settings(max_examples=60)
    @given(st.lists(ACTIONS, max_size=12))
    # Drawn histories copy two versions nearly always, but not for sure.
    @example([("upload", 1, 0, 4), ("check", None), ("upload", 2, 0, 4)])
    def holds(actions):
        remote.clear()
        shutil.rmtree(remote.copy)
        remote.copy.mkdir()
        remote.report = bucket.Report()
        history = History(remote, content)
        for action, *words in [*actions, ("check", None)]:
            getattr(history, action)(*words)
            for number in remote.copied():
                assert files_of(remote.copy / "tiny" / str(number)) in history.whole
            assert {path.name for path in remote.copy.iterdir()} <= {".busy", "tiny"}
        copied.extend(remote.copied())

    holds()
    assert {1, 2} <= set(copied)

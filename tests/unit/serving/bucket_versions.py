"""A repository in a bucket in memory, and versions that are complete and tiny, but hold no graph."""

import hashlib
import json

import fsspec

from serving import bucket, manifest


def make_version(content, number, seed=0, name="tiny"):
    """Returns the files of a version in the order of their upload: the manifest is last."""
    made = {
        "labels.txt": b"".join(f"{label}\n".encode() for label in content["labels"]),
        "model.onnx": f"graph {number} {seed}".encode() * 5,
        "variables/variables.index": f"index {seed}".encode(),
    }
    records = {path: {"size": len(one), "sha256": hashlib.sha256(one).hexdigest()} for path, one in made.items()}
    described = {**content, "name": name, "version": number, "files": records}
    return {**made, manifest.NAME: json.dumps(described).encode()}


def files_of(folder):
    """Returns the files below a folder, by path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class MemoryBucket:
    """A bucket of fsspec's file system in memory, and its copy.

    Args:
        copy: folder of the copy.
    """

    url = "memory://bucket/models"

    def __init__(self, copy):
        self.copy, self.report = copy, bucket.Report()
        self.system = fsspec.filesystem("memory")
        self.clear()

    def put(self, path, content):
        self.system.pipe_file(f"/bucket/models/{path}", content)

    def upload(self, files, prefix, count=None):
        """Uploads the first files of a version, or all."""
        for path, content in list(files.items())[:count]:
            self.put(f"{prefix}/{path}", content)

    def objects(self, prefix=""):
        """Returns the objects below a prefix, by path below the repository."""
        start = "/bucket/models/"
        found = {path.removeprefix(start): one.getvalue() for path, one in self.system.store.items()}
        return {path: content for path, content in found.items() if path.startswith(prefix)}

    def remove(self, prefix):
        for path in self.objects(prefix):
            self.system.rm_file(f"/bucket/models/{path}")

    def clear(self):
        self.system.store.clear()
        self.system.pseudo_dirs[:] = [""]

    def check(self):
        """Checks the bucket once, and returns the report."""
        self.report = bucket.synchronize(self.url, self.copy, self.report)
        return self.report

    def copied(self, name="tiny"):
        """Returns the versions in the copy."""
        return sorted(int(path.name) for path in (self.copy / name).glob("[0-9]*"))

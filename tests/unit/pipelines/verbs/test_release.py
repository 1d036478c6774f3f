"""Releases of a model in a folder, and of one in a bucket, on fsspec's file system in memory."""

import errno
import itertools
import json
import os
from pathlib import Path

import pytest

from pipelines.core.url import Url
from pipelines.export import release as engine
from pipelines.verbs.cli import main
from serving import manifest, release
from serving.release import Release

numbers = itertools.count()


def add(version):
    """Adds a minimal version: a folder, and in a bucket a manifest."""
    if isinstance(version, Path):
        version.mkdir(parents=True)
    else:
        (version / manifest.NAME).write_bytes(b"{}")


def write(place, text):
    place.write_bytes(text.encode())


def released(model):
    return Release.model_validate_json((model / release.NAME).read_text())


def configured(model):
    """The configuration of TF Serving."""
    return (model.parent / "models.config").read_text()


@pytest.fixture(params=["folder", "bucket"])
def model(request, tmp_path):
    root = tmp_path if request.param == "folder" else Url(f"memory://released-{next(numbers)}/models")
    for version in (1, 2, 3):
        add(root / "digits" / str(version))
    return root / "digits"


@pytest.fixture
def base(model):
    """The path of the repository for TF Serving."""
    return "/models" if isinstance(model, Path) else str(model.parent)


def run(capsys, *words):
    status = main(["release", *map(str, words)])
    said = capsys.readouterr()
    return status, said.out + said.err


def test_it_prints_what_is_served_and_writes_the_configuration(model, base, capsys):
    status, said = run(capsys, model)
    assert (status, f"{model}: the newest version is served, 3 now\n" in said) == (0, True)
    assert said.endswith(f"TF Serving: {model.parent}/models.config\n")
    text = configured(model)
    assert f'base_path: "{base}/digits"' in text
    assert "latest { num_versions: 2 }" in text
    assert not (model / release.NAME).exists()


def test_versions_and_labels(model, capsys):
    status, said = run(capsys, model, "--versions", 1, 2, "--labels", "stable=1", "canary=2")
    assert (status, "version 1 stable" in said, "version 2 canary" in said) == (0, True, True)
    assert json.loads((model / release.NAME).read_text()) == {"versions": [1, 2], "labels": {"stable": 1, "canary": 2}}
    text = configured(model)
    assert "specific { versions: 1 versions: 2 }" in text
    assert 'version_labels { key: "stable" value: 1 }' in text


def test_a_label_moves_and_versions_roll_back(model, capsys):
    run(capsys, model, "--labels", "stable=1")
    run(capsys, model, "--labels", "stable=2")
    assert released(model) == Release(versions=(1, 2), labels={"stable": 2})
    run(capsys, model, "--versions", 1)
    assert released(model) == Release(versions=(1,), labels={})
    run(capsys, model, "--newest")
    assert released(model) == Release()


def test_versions_that_are_no_longer_served_are_named(model, capsys):
    # Without a release, the newest version is served.
    assert f"{model}: version 3 is no longer served\n{model}: " in run(capsys, model, "--labels", "stable=1")[1]
    assert "no longer" not in run(capsys, model, "--labels", "stable=2")[1]
    assert f"{model}: version 1 is no longer served\n{model}: " in run(capsys, model, "--versions", 2, 3)[1]
    assert f"{model}: version 2 is no longer served\n{model}: " in run(capsys, model, "--newest")[1]
    assert "no longer" not in run(capsys, model, "--labels", "stable=3")[1]


def test_labels_that_are_removed_are_named(model, capsys):
    run(capsys, model, "--versions", 1, 2, 3, "--labels", "stable=1", "canary=2", "next=3")
    said = run(capsys, model, "--versions", 2, "--labels", "next=2")[1]
    ended = [f"{model}: version {version} is no longer served\n" for version in (1, 3)]
    # The label next moves.
    assert said.startswith("".join(ended) + f"{model}: label stable of version 1 is removed\n{model}: version 2 ")
    assert "is removed" not in run(capsys, model, "--versions", 2, 3)[1]
    said = run(capsys, model, "--newest")[1]
    for label in ("canary", "next"):
        assert f"{model}: label {label} of version 2 is removed\n" in said


def test_labels_that_are_not_named_stay(model, capsys):
    run(capsys, model, "--labels", "stable=1", "canary=2")
    run(capsys, model, "--labels", "canary=3")
    assert released(model) == Release(versions=(1, 2, 3), labels={"stable": 1, "canary": 3})
    run(capsys, model, "--labels", "canary=")
    assert released(model) == Release(versions=(1, 2, 3), labels={"stable": 1})
    status, said = run(capsys, model, "--labels", "canary=")
    assert (status, "there is no label canary to remove. There are: stable" in said) == (2, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--versions", 7), "has no version 7. It has: 1, 2, 3"),
        (("--labels", "stable"), "a label is LABEL=VERSION"),
        (("--labels", "stable=x"), "a label is LABEL=VERSION"),
        (("--labels", "stable=1", "--versions", 2), "not among the versions"),
        (("--labels", "stable=7", "--versions", 1), "error: label stable is of version 7, which is not among"),
        (("--newest", "--versions", 1), "Leave out"),
        (("--labels", "my label=1"), "such as stable. Received: 'my label'.\n"),
        (("--labels", f"{'a' * 65}=1"), "a label has up to 64 letters, digits and characters of _.- and starts"),
        (("--labels", "stable=0"), "a version is a number from 1 to 9,223,372,036,854,775,807. Received: 0.\n"),
        (("--versions", 2**63), "Received: 9,223,372,036,854,775,808.\n"),
    ],
)
def test_contradictions_are_refused(model, capsys, words, expected):
    status, said = run(capsys, model, *words)
    assert status == 2
    assert expected in said
    assert not (model / release.NAME).exists()


def test_all_models_of_the_repository_are_configured(model, base, capsys):
    add(model.parent / "cats" / "4")
    write(model.parent / "cats" / release.NAME, '{"versions": [4]}')
    run(capsys, model, "--labels", "stable=2")
    text = configured(model)
    assert text.count("config {") == 2
    assert f'base_path: "{base}/cats"' in text
    assert "specific { versions: 4 }" in text


@pytest.mark.parametrize("content", ["{", " " * release.LARGEST + "{}"])
def test_a_damaged_release_of_another_model_changes_nothing_for_tf_serving(model, capsys, content):
    run(capsys, model)
    before = configured(model)
    add(model.parent / "cats" / "4")
    write(model.parent / "cats" / release.NAME, content)
    status, said = run(capsys, model, "--versions", 1)
    expected = "damaged" if content == "{" else "cannot be read: it has more than 1,048,576 bytes"
    assert (status, f"{model.parent}/cats/release.json" in said, expected in said) == (2, True, True)
    assert configured(model) == before


@pytest.mark.parametrize("model", ["folder"], indirect=True)
def test_a_repository_that_cannot_be_written_to(model, capsys, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pipelines.export.release.write_text", refuse)
    status, said = run(capsys, model, "--versions", 1)
    assert (status, "cannot be written to: Permission denied" in said) == (2, True)


@pytest.mark.parametrize("model", ["folder"], indirect=True)
@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_the_release_is_printed_where_nothing_can_be_written(model, capsys, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("pipelines.export.release.write_text", refuse)
    status, said = run(capsys, model)
    assert (status, f"{model}: the newest version is served, 3 now\n" in said) == (0, True)
    assert said.endswith(f"TF Serving: {model.parent}/models.config cannot be written: {os.strerror(number)}\n")
    status, said = run(capsys, model, "--newest")
    assert (status, f"cannot be written to: {os.strerror(number)}" in said) == (2, True)


def test_nothing_is_written_where_nothing_changes(model, capsys, monkeypatch):
    words = (model, "--versions", 1, "--labels", "stable=1")
    run(capsys, *words)
    monkeypatch.setattr("pipelines.export.release._write", None)
    assert run(capsys, *words) == run(capsys, model)
    assert run(capsys, model) == (0, f"{model}: version 1 stable\nTF Serving: {model.parent}/models.config\n")


def test_the_release_is_printed_though_it_names_a_version_that_was_removed(model, capsys):
    write(model / release.NAME, '{"versions": [1, 7], "labels": {"stable": 7}}')
    status, said = run(capsys, model)
    assert (status, f"{model}: version 1\n{model}: version 7 stable, which is missing\n" in said) == (0, True)
    status, said = run(capsys, model, "--labels", "next=2")
    assert status == 2
    assert "has no version 7. It has: 1, 2, 3. Name all versions to be served with --versions." in said
    status, said = run(capsys, model, "--versions", 1, 2)
    assert (status, f"{model}: label stable of version 7 is removed\n" in said) == (0, True)
    assert released(model) == Release(versions=(1, 2))


def test_the_release_is_printed_though_that_of_another_model_is_damaged(model, capsys):
    add(model.parent / "cats" / "4")
    write(model.parent / "cats" / release.NAME, "{")
    status, said = run(capsys, model)
    assert (status, f"{model}: the newest version is served, 3 now\n" in said) == (0, True)
    assert f"models.config cannot be written: {model.parent}/cats/release.json is damaged" in said


def test_a_folder_that_is_not_a_model_is_refused(tmp_path, capsys):
    assert "it has no versions" in run(capsys, tmp_path)[1]
    assert "it has no versions" in run(capsys, f"memory://released-{next(numbers)}/models")[1]


@pytest.mark.parametrize("model", ["bucket"], indirect=True)
def test_an_interrupted_upload_is_no_version(model, capsys):
    (model / "4" / "model.onnx").write_bytes(b"half")
    assert "the newest version is served, 3 now" in run(capsys, model)[1]
    status, said = run(capsys, model, "--versions", 4)
    assert (status, f"{model} has no version 4. It has: 1, 2, 3." in said) == (2, True)


def test_a_bucket_as_a_whole_is_no_model(capsys):
    url = f"memory://released-{next(numbers)}"
    add(Url(url) / "1")
    status, said = run(capsys, url)
    assert (status, f"{url} is a bucket. Name the folder of a model's versions in it" in said) == (2, True)


@pytest.mark.parametrize(("given", "known"), [("s3", "s3"), ("s3a", "s3"), ("gcs", "gs"), ("abfs", "abfs")])
def test_tf_serving_gets_a_url_of_a_kind_that_it_knows(monkeypatch, given, known):
    monkeypatch.setattr(Url, "below", lambda url: {"digits/1/manifest.json": 2})
    monkeypatch.setattr(engine, "read_all", lambda urls: [None for _ in urls])
    assert f'base_path: "{known}://bucket/models/digits"' in engine._configuration(Url(f"{given}://bucket/models"))

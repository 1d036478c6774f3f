import json

import pytest

from pipelines.verbs.cli import main
from serving import release


@pytest.fixture
def model(tmp_path):
    for version in (1, 2, 3):
        (tmp_path / "digits" / str(version)).mkdir(parents=True)
    return tmp_path / "digits"


def run(capsys, *words):
    status = main(["release", *map(str, words)])
    said = capsys.readouterr()
    return status, said.out + said.err


def test_it_prints_what_is_served_and_writes_the_configuration(model, capsys):
    status, said = run(capsys, model)
    assert (status, "the newest version is served, 3 now" in said) == (0, True)
    text = (model.parent / "models.config").read_text()
    assert 'base_path: "/models/digits"' in text
    assert "latest { num_versions: 2 }" in text
    assert not (model / release.NAME).exists()


def test_versions_and_labels(model, capsys):
    status, said = run(capsys, model, "--versions", 1, 2, "--labels", "stable=1", "canary=2")
    assert (status, "version 1 stable" in said, "version 2 canary" in said) == (0, True, True)
    assert json.loads((model / release.NAME).read_text()) == {"versions": [1, 2], "labels": {"stable": 1, "canary": 2}}
    text = (model.parent / "models.config").read_text()
    assert "specific { versions: 1 versions: 2 }" in text
    assert 'version_labels { key: "stable" value: 1 }' in text


def test_a_label_moves_and_versions_roll_back(model, capsys):
    run(capsys, model, "--labels", "stable=1")
    run(capsys, model, "--labels", "stable=2")
    assert release.read(model) == release.Release(versions=(1, 2), labels={"stable": 2})
    run(capsys, model, "--versions", 1)
    assert release.read(model) == release.Release(versions=(1,), labels={})
    run(capsys, model, "--newest")
    assert release.read(model) == release.Release()


def test_labels_that_are_not_named_stay(model, capsys):
    run(capsys, model, "--labels", "stable=1", "canary=2")
    run(capsys, model, "--labels", "canary=3")
    assert release.read(model) == release.Release(versions=(1, 2, 3), labels={"stable": 1, "canary": 3})
    run(capsys, model, "--labels", "canary=")
    assert release.read(model) == release.Release(versions=(1, 2, 3), labels={"stable": 1})
    status, said = run(capsys, model, "--labels", "canary=")
    assert (status, "there is no label canary to remove. There are: stable" in said) == (2, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--versions", 7), "has no version 7. It has: 1, 2, 3"),
        (("--labels", "stable"), "a label is LABEL=VERSION"),
        (("--labels", "stable=x"), "a label is LABEL=VERSION"),
        (("--labels", "stable=1", "--versions", 2), "not among the versions"),
        (("--newest", "--versions", 1), "Leave out"),
    ],
)
def test_contradictions_are_refused(model, capsys, words, expected):
    status, said = run(capsys, model, *words)
    assert status == 2
    assert expected in said
    assert not (model / release.NAME).exists()


def test_all_models_of_the_repository_are_configured(model, capsys):
    (model.parent / "cats" / "4").mkdir(parents=True)
    run(capsys, model, "--labels", "stable=2")
    text = (model.parent / "models.config").read_text()
    assert text.count("config {") == 2
    assert 'base_path: "/models/cats"' in text


def test_a_damaged_release_of_another_model_changes_nothing_for_tf_serving(model, capsys):
    run(capsys, model)
    before = (model.parent / "models.config").read_text()
    (model.parent / "cats" / "4").mkdir(parents=True)
    (model.parent / "cats" / release.NAME).write_text("{")
    status, said = run(capsys, model, "--versions", 1)
    assert (status, "cats" in said, "damaged" in said) == (2, True, True)
    assert (model.parent / "models.config").read_text() == before


def test_a_repository_that_cannot_be_written_to(model, capsys, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pipelines.export.release.write_text", refuse)
    status, said = run(capsys, model, "--versions", 1)
    assert (status, "cannot be written to: Permission denied" in said) == (2, True)


def test_a_folder_that_is_not_a_model_is_refused(tmp_path, capsys):
    assert "it has no versions" in run(capsys, tmp_path)[1]

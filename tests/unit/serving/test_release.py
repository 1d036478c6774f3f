import pytest

from serving import release
from serving.errors import ModelError
from serving.release import Release


def test_without_a_file_the_newest_is_served(tmp_path):
    assert release.read(tmp_path) == Release(versions=None, labels={})


def test_a_written_release_is_read(tmp_path):
    wanted = Release(versions=(1, 3), labels={"stable": 1, "canary": 3})
    (tmp_path / release.NAME).write_text(wanted.model_dump_json())
    assert release.read(tmp_path) == wanted


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "damaged"),
        ('{"versions": []}', "versions"),
        ('{"versions": [0]}', "versions"),
        ('{"versions": [9223372036854775808]}', "versions"),
        ('{"labels": {"stable": 1}}', "release.json contradicts itself: label stable is of version 1"),
        ('{"versions": [2], "labels": {"stable": 1}}', "label stable is of version 1"),
        ('{"versions": [1], "labels": {"a b": 1}}', "labels"),
        ('{"version": 1}', "version"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, content, said):
    (tmp_path / release.NAME).write_text(content)
    with pytest.raises(ModelError, match=said) as error:
        release.read(tmp_path)
    assert str(tmp_path / release.NAME) in str(error.value)

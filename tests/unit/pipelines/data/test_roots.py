import pytest
import tensorflow_datasets as tfds

from pipelines.core.errors import UserError
from pipelines.data import roots
from pipelines.data.own.prepare import is_own


def test_every_data_set_of_tfds_is_among_the_possible_names():
    assert set(tfds.list_builders(with_community_datasets=False)) - set(roots.OWN) <= roots._possible_names()


@pytest.mark.parametrize(
    "data", ["mnist", "cifar10:3.0.2", "glue/cola:2.0.0", "oxford_flowers102", "/nowhere", "./x", "x.csv"]
)
def test_known_names_and_paths_pass(data):
    roots.refuse_unknown(data)


def test_a_path_that_exists_passes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    roots.refuse_unknown("photos")


@pytest.mark.parametrize(
    ("data", "close"), [("minst", "mnist"), ("cifar", "cifar10"), ("oxford_flower102", "oxford_flowers102")]
)
def test_a_misspelt_name_is_refused_with_a_suggestion(data, close):
    with pytest.raises(UserError, match=rf"there is no data set '{data}'\. Did you mean '{close}'\?"):
        roots.refuse_unknown(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("~nosuchuser/x.csv", r"home folder of ~nosuchuser is unknown\. Write the path in full: ~nosuchuser/x\.csv"),
        ("a" * 300, r"a cannot be opened: File name too long\. Check the path\."),
    ],
)
@pytest.mark.parametrize("check", [roots.path_of, roots.refuse_unknown, roots.refuse_missing, is_own])
def test_what_can_be_no_path_is_refused(check, data, said):
    with pytest.raises(UserError, match=said):
        check(data)

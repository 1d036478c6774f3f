import pytest
import tensorflow_datasets as tfds

from pipelines.core.errors import UserError
from pipelines.data import roots


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

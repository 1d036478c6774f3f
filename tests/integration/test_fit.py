"""Data by URL and refusals of `highway fit`; the tutorial on own images runs it (tests/e2e/test_tutorials.py)."""

import pytest

from pipelines.core.errors import UserError
from pipelines.core.url import Url
from pipelines.data.roots import unpinned
from pipelines.fit import fit
from pipelines.verbs.cli import main
from tests import houses, shapes, table_model


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_data_in_a_bucket_are_fitted_to(home, monkeypatch, capsys):
    trained = []

    def train(config, run, **_):
        trained.append((config.data, str(run)))
        raise UserError("enough")

    monkeypatch.setattr(fit, "train", train)
    monkeypatch.setattr("pipelines.fit.choice.seconds_per_step", lambda *_: 1.0)
    shapes.write(home / "shapes", 8)
    for file in (*(home / "shapes").rglob("*.png"), houses.write(home / "houses.csv")):
        (Url("memory://fitted") / file.relative_to(home).as_posix()).write_bytes(file.read_bytes())
    assert main(["fit", "memory://fitted/houses.csv", "--target", "price", "--minutes", "0.01"]) == 2
    assert main(["fit", "memory://fitted/shapes", "--minutes", "0.01"]) == 2
    (table, run), (images, other) = trained
    assert (unpinned(table)[0], run) == ("memory://fitted/houses.csv", "runs/houses")
    assert (unpinned(images)[0], other) == ("memory://fitted/shapes", "runs/shapes")
    assert unpinned(table)[1].is_dir()
    assert unpinned(images)[1].is_dir()
    assert "memory://fitted/shapes: " in capsys.readouterr().out


def test_a_folder_that_cannot_take_the_version_is_refused_before_training(home, monkeypatch, capsys):
    monkeypatch.setattr(fit, "train", lambda *_, **__: pytest.fail("trained"))
    houses.write(home / "houses.csv")
    table_model.write(home / "models" / "houses" / "1")
    (home / "file").touch()
    words = ["fit", "houses.csv", "--target", "verdict", "--minutes", "0.01"]
    assert main(words) == 2
    assert "models/houses is a model of" in capsys.readouterr().err
    assert main([*words, "--to", "file/houses"]) == 2
    assert "file/houses cannot be written" in capsys.readouterr().err
    assert main([*words, "--run", "file/run"]) == 2
    assert "file/run cannot be written" in capsys.readouterr().err
    assert not (home / "runs").exists()


@pytest.mark.parametrize(("words", "message"), [(["mnist"], "`highway train`"), (["nowhere"], "no images of your own")])
def test_other_data_are_refused(home, capsys, words, message):
    assert main(["fit", *words]) == 2
    assert message in capsys.readouterr().err

import pytest

from pipelines.verbs.cli import main


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--no-gates"], "--no-gates"),
        (["--to", "models/b", "--pictures", "padded", "--int8"], "--to, --pictures, --int8"),
    ],
)
def test_options_of_an_export_are_refused_next_to_verify(words, named, capsys):
    assert main(["export", "models/a", "--verify", "--sign", "key.pem", *words]) == 2
    assert f"--verify checks a version as it is, without {named}. Omit" in capsys.readouterr().err

import re

import pytest

from pipelines import recipes
from pipelines.core.config import Space
from pipelines.core.errors import UserError
from pipelines.recipes.provenance import flat
from pipelines.recipes.twins import KINDS
from pipelines.verbs.recipes import main


@pytest.mark.parametrize("arguments", [[], ["list"]])
def test_the_list_names_every_recipe(arguments, capsys):
    main(arguments)
    printed = capsys.readouterr().out
    assert "Twins for comparison, except for demo and mnist_dense_1000:" in printed
    first_words = [line.split()[0] for line in printed.splitlines()]
    assert {name for name in recipes.names() if not name.endswith(KINDS)} <= set(first_words)


@pytest.mark.parametrize("name", ["demo", "cifar10_19", "fitnet_b_residual"])
def test_show_prints_every_number_and_its_source(name, capsys):
    main(["show", name])
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line for line in printed.splitlines() if line.strip()}
    for field in flat(recipes.get(name).config):
        assert rows[field].split()[-1] in {"recorded", "count-matched", "assumed", "default"}
    assert f"highway train {name}" in printed
    assert recipes.header(name) in printed


def test_show_prints_the_value_and_the_tag(capsys):
    main(["show", "cifar10_19"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["optimizer.learning_rate", "0.025", "recorded"] in rows
    assert ["preprocess.contrast", "0.67", "assumed"] in rows
    assert ["schedule.boundaries", "100000", "150000", "175000", "recorded"] in rows
    assert ["seed", "0", "default"] in rows


def test_only_a_recipe_with_a_search_space_shows_its_bounds(capsys, monkeypatch):
    main(["show", "demo"])
    assert "\nhighway tune searches within these bounds, which are ours:\n  --search.learning-rate 0.01 0.5\n" in (
        capsys.readouterr().out
    )
    demo = recipes.get("demo").model_copy(update={"search": Space()})
    monkeypatch.setattr(recipes, "get", lambda name: demo)
    main(["show", "demo"])
    assert "highway tune" not in capsys.readouterr().out


def test_nothing_is_cut_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    main(["list"])
    assert re.search(r"^mnist_dense_50 +mnist .{20}", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show"], "which recipe?"),
        (["show", "fitnet_d"], "there is no recipe 'fitnet_d'"),
        (["list", "demo"], "highway recipes show demo"),
        (["demo"], "ACTION must be 'list' or 'show'"),
        (["--nam", "x"], "there is no option '--nam'"),
    ],
)
def test_errors_are_reported(arguments, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        main(arguments)

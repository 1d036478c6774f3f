import json
import re

import jsonschema_rs
import pytest

from pipelines import recipes
from pipelines.core.config import Space
from pipelines.core.errors import UserError
from pipelines.core.frozen import flat
from pipelines.recipes.twins import KINDS
from pipelines.verbs.recipes import main


@pytest.mark.parametrize("arguments", [[], ["list"]])
def test_the_list_names_every_recipe(arguments, capsys):
    main(arguments)
    printed = capsys.readouterr().out
    without_twins = re.search("Twins for comparison, except for (.*):", printed)[1].split(" and ")
    originals = [name for name in recipes.names() if not name.endswith(KINDS)]
    assert without_twins == [name for name in originals if f"{name}_plain" not in recipes.names()]
    assert without_twins[:2] == ["demo", "mnist_dense_1000"]
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


@pytest.mark.parametrize(("name", "meant"), [("mine", "mine"), ("mine.yaml", "mine"), ("v1.2", "v1.2")])
def test_a_recipe_file_of_another_kind_is_named_anew(name, meant):
    with pytest.raises(UserError, match=rf"Did you mean: highway recipes new {re.escape(meant)}\.json --like demo$"):
        main(["new", name, "--like", "demo"])


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
        (["demo"], "ACTION must be 'list', 'show', 'new' or 'schema'"),
        (["show", "nowhere.json"], "cannot be read"),
        (["show", "demo", "--like", "demo"], "--like is for 'highway recipes new'"),
        (["new", "mine.json"], "a new recipe needs a file and a start"),
        (["new", "mine", "--like", "demo"], "highway recipes new mine.json --like demo"),
        (["new", "my net", "--like", "demo"], "highway recipes new 'my net.json' --like demo"),
        (["new", "mine.json", "--like", "fitnet_d"], "there is no recipe 'fitnet_d'"),
        (["--nam", "x"], "there is no option '--nam'"),
    ],
)
def test_errors_are_reported(arguments, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        main(arguments)


def test_a_recipe_of_ones_own_is_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["new", "my net.json", "--like", "cifar10_modern"])
    assert "highway train 'my net.json'" in capsys.readouterr().out
    main(["show", "my net.json"])
    assert "highway train 'my net.json' --epochs" in capsys.readouterr().out
    main(["new", "mine.json", "--like", "cifar10_modern"])
    assert "highway train mine.json" in capsys.readouterr().out
    original = recipes.get("cifar10_modern")
    copied = recipes.named_recipe("mine.json")
    assert copied.config == original.config.model_copy(update={"recipe": "mine"})
    assert copied.search == original.search
    main(["show", "mine.json"])
    printed = capsys.readouterr().out
    assert "mine: like cifar10_modern" in printed
    assert "highway train mine.json --epochs" in printed
    with pytest.raises(UserError, match="exists already"):
        main(["new", "mine.json", "--like", "demo"])


def test_the_configuration_of_a_run_is_a_recipe(tmp_path, capsys):
    config = recipes.get("demo").config
    (tmp_path / "config.json").write_text(config.model_dump_json())
    assert recipes.named_recipe(str(tmp_path / "config.json")).config == config
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        main(["show", str(tmp_path / "config.json")])
    (tmp_path / "config.json").write_text('{"recipe": "x", "epoch": 3}')
    with pytest.raises(UserError, match="there is no field epoch"):
        main(["show", str(tmp_path / "config.json")])


def test_recipe_files_have_a_schema(tmp_path, capsys):
    main(["schema"])
    schema = json.loads(capsys.readouterr().out)
    recipe = json.loads(recipes.get("cifar10_modern").model_dump_json(by_alias=True))
    assert jsonschema_rs.is_valid(schema, recipe)
    assert not jsonschema_rs.is_valid(schema, {**recipe, "config": {**recipe["config"], "epochs": 0}})

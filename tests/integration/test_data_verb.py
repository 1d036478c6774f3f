"""`highway data` on real digits."""

import json
import re
import shutil

import numpy as np
import pytest
from matplotlib.image import imread

from pipelines.verbs.cli import main
from tests import shapes


@pytest.fixture(scope="session")
def digits(mnist_5k):
    return mnist_5k


@pytest.fixture(autouse=True)
def _isolated(tmp_path, monkeypatch):
    """Isolates the tests from the user's files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)


def test_list_shows_which_data_sets_are_prepared(digits, capsys, tmp_path):
    assert main(["data", "--data-dir", str(digits)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    for cell in ("1.0.0", "28 x 28 x 1", "4,000", "500", str(digits / "mnist_5k" / "1.0.0")):
        assert cell in lines["mnist_5k"]
    assert "not prepared; highway data prepare cifar10 downloads it" in lines["cifar10"]
    assert main(["data", "list"]) == 0
    assert "mnist_5k" in (out := capsys.readouterr().out)
    assert "prepared on first use" in out
    assert not list(tmp_path.iterdir())


def test_list_shows_further_and_damaged_data_sets(digits, capsys, tmp_path):
    root = tmp_path / "sets"
    (root / "mine").mkdir(parents=True)
    (root / "mine" / "1.0.0").symlink_to(digits / "mnist_5k" / "1.0.0")
    (root / "mnist" / "3.0.1").mkdir(parents=True)
    (root / "mnist" / "3.0.1" / "dataset_info.json").write_text("{")
    assert main(["data", "--data-dir", str(root)]) == 0
    out = capsys.readouterr().out
    assert f"{root / 'mine' / '1.0.0'}" in out
    assert "cannot be read" in out


def test_prepare_creates_the_given_folder(capsys, tmp_path):
    for _ in range(2):
        assert main(["data", "prepare", "mnist_5k", "--data-dir", "new/sets"]) == 0
        assert capsys.readouterr().out == "mnist_5k is ready in new/sets/mnist_5k/1.0.0\n"
    assert [path.name for path in (tmp_path / "new" / "sets").iterdir()] == ["mnist_5k"]


def test_names_of_classes_are_no_markup(tmp_path, capsys):
    shapes.write(tmp_path / "shapes", 4)
    lines = [f"shapes/circle/{number:03}.png,{('[bold]', '[/INST]')[number % 2]}" for number in range(4)]
    (tmp_path / "table.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    assert main(["data", "show", "table.csv"]) == 0
    assert {"[bold]", "[/INST]"} <= {*capsys.readouterr().out.split()}


@pytest.mark.parametrize(("name", "rows"), [("mnist_5k", 4), ("demo", 2)])
def test_show_draws_a_figure(digits, capsys, tmp_path, name, rows):
    path = tmp_path / "figures" / "samples.png"
    assert main(["data", "show", name, "--data-dir", str(digits), "--to", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    figure = imread(path)
    assert figure.shape[1] > figure.shape[0] > 100 * rows
    assert len(np.unique(figure)) > 50


def test_show_draws_the_samples_of_a_recipe_file(digits, tmp_path):
    assert main(["recipes", "new", "mine.json", "--like", "demo"]) == 0
    recipe = json.loads((tmp_path / "mine.json").read_text())
    recipe["config"]["augment"]["sharpness"] = 0.9
    (tmp_path / "mine.json").write_text(json.dumps(recipe))
    assert main(["data", "show", "mine.json", "--data-dir", str(digits), "--to", "samples.svg"]) == 0
    assert "sharpness changed by up to 90%" in (tmp_path / "samples.svg").read_text()


def test_throughput_reports_speed_settings_and_machine(digits, capsys, monkeypatch):
    monkeypatch.setattr("pipelines.data.batches.WARM_UP", 0.01)
    monkeypatch.setattr("pipelines.data.batches.SECONDS", 0.05)
    assert main(["data", "throughput", "demo", "--data-dir", str(digits)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert int(first.split(" examples/s")[0].replace(",", "")) > 0
    assert "mnist_5k in batches of" in first
    assert "values / 25" in first
    assert "cores" in second


def test_show_describes_own_images_and_what_is_wrong_with_them(capsys, tmp_path):
    folder = shapes.write(tmp_path / "shapes", 12)
    (folder / "circle" / "cut.png").write_bytes(b"?")
    shutil.copy(folder / "circle" / "000.png", folder / "square" / "copy.png")
    assert main(["data", "show", str(folder), "--image-size", "24"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^class +train +validation +test$", out, re.MULTILINE)
    assert re.search(r"^square +[\d ]+$", out, re.MULTILINE)
    assert re.search(r"^sizes: from \d\d x \d\d to \d\d x \d\d, colour$", out, re.MULTILINE)
    assert "note: images with two labels: 1 (circle/000.png = square/copy.png)" in out
    assert "damaged: circle/cut.png is not an image" in out
    assert "training refuses these data: 1 of 38 images cannot be read:" in out
    assert main(["data", "show", str(folder), "--image-size", "24", "--skip-damaged"]) == 0
    out = capsys.readouterr().out
    assert "damaged: circle/cut.png is not an image" in out
    assert "training refuses" not in out
    assert imread(tmp_path / "shapes-samples.png").shape[0] > 300


def test_show_says_what_training_refuses(capsys, tmp_path):
    shapes.write(tmp_path / "shapes", 4)
    files = [(f"shapes/{label}/{number:03}.png", label) for label in ("circle", "square") for number in range(4)]
    lines = [f"{file},{label},{('train', 'test')[place % 2]},{place // 4}" for place, (file, label) in enumerate(files)]
    (tmp_path / "table.csv").write_text("\n".join(["path,label,split,patient", *lines]) + "\n")
    given = ["table.csv", "--group", "patient", "--image-size", "24"]
    assert main(["data", "show", *given]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert main(["train", "demo", "--data", *given]) == 2
    _, _, refused = " ".join(capsys.readouterr().err.split()).partition("highway train: ")
    assert refused.startswith("error: --group keeps a group in one split, and the data name two splits for 2: 0, 1.")
    assert f"training refuses these data: {refused.removeprefix('error: ')}" in shown


def test_show_draws_classes_of_one_image(capsys, tmp_path):
    folder = shapes.write(tmp_path / "few", 1)
    assert main(["data", "show", str(folder), "--image-size", "24"]) == 0
    assert imread(tmp_path / "few-samples.png").shape[0] > 50


def test_show_names_the_figure_after_the_current_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(shapes.write(tmp_path / "few", 1))
    assert main(["data", "show", ".", "--image-size", "24"]) == 0
    assert (tmp_path / "few" / "few-samples.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show"], "which data set?"),
        (["show", "mnst"], "Did you mean 'mnist'?"),
        (["show", "mine.json"], "the recipe file mine.json cannot be read"),
        (["show", "mnist_5k", "--to", "samples.txt"], "must end in .png, .pdf or .svg"),
        (
            ["show", "demo", "--image-size", "24"],
            "--image-size is for your own data, and the recipe demo sets",
        ),
        (["throughput", "mine.json", "--group", "id"], "--group is for your own data, and the recipe mine.json"),
        (["list", "mnist"], "highway data show mnist"),
        (["prepare", "./folder"], "there is no prepared data set in 'folder'"),
        (["prepare", "./folder", "--data-dir", "new/sets"], "there is no prepared data set in 'folder'"),
        (["prepare", "mnist_5k", "--to", "x.png"], "--to is for"),
        (["list", "--data-dir", "nowhere"], "no folder 'nowhere'"),
        (["paint", "mnist"], "'list', 'prepare', 'show' or 'throughput'"),
    ],
)
def test_user_errors_are_one_line_and_leave_nothing(capsys, tmp_path, monkeypatch, arguments, message):
    # Libraries that are imported for the first time write into the home folder, which is next to it.
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert main(["data", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("highway data: error: ")
    assert message in captured.err
    assert captured.out == ""
    assert not list(here.iterdir())

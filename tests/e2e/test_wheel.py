"""The wheel: complete, with names that collide with nothing, and a program that works under them."""

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = {"highway_keras": "highway_keras", "pipelines": "highway_keras_pipelines", "serving": "highway_keras_serving"}
BUILD = "import sys, build_backend; build_backend.build_wheel(sys.argv[1])"
# Runs where `pipelines` and `serving` cannot be imported.
PROGRAM = """
import sys
sys.modules |= {"pipelines": None, "serving": None}
from importlib.metadata import entry_points
from pathlib import Path
import highway_keras_serving
assert Path(highway_keras_serving.__file__).is_relative_to(sys.argv[1])
main = next(iter(entry_points(group="console_scripts", name="highway"))).load()
assert main.__module__ == "highway_keras_pipelines.verbs.cli"
assert main(["--help"]) == main(["recipes"]) == 0
from highway_keras_serving.engine.processes import ChildProcesses
children = ChildProcesses()
assert children.call(len, [1, 2]) == 2
children.close()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as file:
        yield file


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def names_in(source):
    """Yields the modules that a file imports, and strings that look like one of the project's modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"^(?:from )?((?:pipelines|serving)\.\w[\w.]*)$", node.value)


def test_the_wheel_contains_every_file_of_the_packages(wheel):
    expected = {
        f"{name}/{path.relative_to(ROOT / package)}"
        for package, name in NAMES.items()
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected


def test_the_names_at_the_top_are_the_project_s_own(wheel):
    top = {name.partition("/")[0] for name in wheel.namelist()}
    (metadata,) = (name for name in top if name.startswith("highway_keras-") and name.endswith(".dist-info"))
    assert top == {*NAMES.values(), metadata}


def test_nothing_in_the_wheel_names_the_folders_of_the_repository(wheel):
    sources = {name: wheel.read(name) for name in wheel.namelist() if name.endswith(".py")}
    found = {
        f"{name}: {module}"
        for name, source in sources.items()
        for module in names_in(source)
        if module.partition(".")[0] in ("pipelines", "serving")
    }
    assert found == set()
    others = {name: wheel.read(name).decode() for name in wheel.namelist() if name.endswith((".js", ".html", ".json"))}
    assert any("from highway_keras_serving.client import Client" in text for text in others.values())
    imported = re.compile(r"\b(?:from|import) (?:pipelines|serving)\b")
    assert [name for name, text in others.items() if imported.search(text)] == []


def test_the_program_runs_from_the_wheel(wheel, tmp_path):
    wheel.extractall(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    printed = run([sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=tmp_path, env=environment)
    assert "highway train demo" in printed
    assert "mnist_dense_10" in printed


def test_links_of_the_description_lead_somewhere(wheel):
    (metadata,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    text = wheel.read(metadata).decode()
    assert "# highway-keras" in text
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []


def test_links_become_absolute_once_the_address_of_the_sources_is_known(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from build_backend import description

    readme = "![Gates](docs/images/gates.png)\n\n*Gates.*\n\n[Depth](docs/depth.md), [paper](https://arxiv.org)\n"
    assert description(readme, None) == "Depth, [paper](https://arxiv.org)\n"
    assert description(readme, "https://host/us") == (
        "![Gates](https://host/us/raw/main/docs/images/gates.png)\n\n*Gates.*\n\n"
        "[Depth](https://host/us/blob/main/docs/depth.md), [paper](https://arxiv.org)\n"
    )

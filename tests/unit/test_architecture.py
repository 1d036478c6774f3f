"""The rules of the house, read from the imports of the sources: which package may use which, and no circles.

An import counts wherever it stands: inside a function, or for the type checker alone.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("highway_keras", "pipelines", "serving")

# What each part of the program may use; `core` stands at the bottom, and verbs are used by nothing.
MAY_USE = {
    "core": set(),
    "recipes": {"core"},
    "data": {"core"},
    "training": {"core", "data"},
    "tuning": {"core", "data", "recipes", "training"},
    "analysis": {"core", "data", "training"},
    "export": {"core", "data", "training"},
    "inference": {"core", "data"},
    "studies": {"core", "data", "recipes", "training", "tuning", "analysis"},
    "verbs": {"core", "data", "recipes", "training", "tuning", "analysis", "export", "inference", "studies"},
}

# A backend's own primitives, each behind one function, and the plots.
OF_THE_LIBRARY = {
    "highway_keras/analysis/compiling.py": {"tensorflow"},
    "highway_keras/analysis/gradients.py": {"jax", "tensorflow"},
    "highway_keras/analysis/plots.py": {"matplotlib"},
    "highway_keras/layers/fused_blend.py": {"tensorflow"},
    "highway_keras/layers/scan.py": {"tensorflow"},
}

# Still to be mended. Nothing may be added.
FOLDER_CIRCLES = [
    {"serving", "serving.api", "serving.protocols", "serving.tf_serving"},
]


@cache
def sources() -> dict[str, Path]:
    """The files of the three packages, by the name that imports them."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """Everything that a module imports: our own files by their names, of other packages the first part."""
    known, found = sources(), set()
    for node in ast.walk(ast.parse(known[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively, which these rules do not read"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & known.keys()
            if names - known.keys():
                found.add(str(node.module))
    return frozenset(name if name in known else name.partition(".")[0] for name in found) - {module}


def folder(module: str) -> str:
    """The package that a module lies in."""
    return module if sources()[module].name == "__init__.py" else module.rpartition(".")[0]


def is_public_face(module: str) -> bool:
    """Whether a module is the `__init__` of a package, which may name what lies below it."""
    return sources()[module].name == "__init__.py"


def circles(arrows: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """The groups of nodes that can all be reached from each other (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in arrows.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = set(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(group)

    for node in arrows:
        if node not in index:
            visit(node)
    return found


def test_a_circle_is_found():
    arrows = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": [], "e": ["a"]}
    assert circles(arrows) == [{"b", "c"}]


def test_no_circle_of_files():
    ours = sources().keys()
    found = circles({module: sorted(imports(module) & ours) for module in ours})
    assert found == []


def test_no_circle_of_folders():
    arrows: dict[str, set[str]] = {}
    for module in sources():
        here = folder(module)
        below = f"{here}." if is_public_face(module) else "\0"
        others = {folder(other) for other in imports(module) & sources().keys()}
        arrows.setdefault(here, set()).update(name for name in others if name != here and not name.startswith(below))
    found = circles({name: sorted(others) for name, others in arrows.items()})
    assert [group for group in found if group not in FOLDER_CIRCLES] == []


@pytest.mark.parametrize("part", MAY_USE)
def test_a_part_of_the_program_uses_what_it_may(part):
    prefix = f"pipelines.{part}"
    modules = [name for name in sources() if name == prefix or name.startswith(f"{prefix}.")]
    assert modules
    wrong = {
        f"{module} -> {other}"
        for module in modules
        for other in imports(module)
        if other.startswith("pipelines.") and other.split(".")[1] not in MAY_USE[part] | {part}
    }
    assert wrong == set()


def test_every_part_of_the_program_has_a_rule():
    parts = {name.split(".")[1] for name in sources() if name.startswith("pipelines.")}
    assert parts == {*MAY_USE, "__main__"}


def test_a_verb_is_imported_by_nothing():
    wrong = {
        f"{module} -> {other}"
        for module in sources()
        for other in imports(module)
        if other.startswith("pipelines.verbs.") and module != "pipelines.__main__"
    }
    assert wrong == set()


def test_the_library_imports_keras_and_numpy_only():
    allowed = {"keras", "numpy", *sys.stdlib_module_names}
    wrong = {
        f"{module} -> {other}"
        for module, path in sources().items()
        if module.partition(".")[0] == "highway_keras"
        for other in imports(module)
        if other.partition(".")[0] != "highway_keras"
        and other not in allowed | OF_THE_LIBRARY.get(str(path.relative_to(ROOT)), set())
    }
    assert wrong == set()


def test_the_exceptions_of_the_library_are_needed():
    found = {
        str(path.relative_to(ROOT)): imports(module) & {"jax", "matplotlib", "tensorflow", "torch"}
        for module, path in sources().items()
        if module.partition(".")[0] == "highway_keras"
    }
    assert {path: names for path, names in found.items() if names} == OF_THE_LIBRARY


def test_the_endpoint_imports_neither_tensorflow_nor_the_program():
    wrong = {
        f"{module} -> {other}"
        for module in sources()
        if module.partition(".")[0] == "serving"
        for other in imports(module)
        if other.partition(".")[0] in {"highway_keras", "jax", "keras", "pipelines", "tensorflow", "torch"}
    }
    assert wrong == set()

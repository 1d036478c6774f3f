"""The import rules of the packages: allowed directions, and no cycles.

Every import counts, also inside a function or under TYPE_CHECKING.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("highway_keras", "pipelines", "serving")

# What each part of the program may import. `core` is the bottom layer; nothing imports `verbs`.
ALLOWED = {
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

# Backend-specific primitives, each behind one function, and the plots.
LIBRARY_EXCEPTIONS = {
    "highway_keras/analysis/compiling.py": {"tensorflow"},
    "highway_keras/analysis/gradients.py": {"jax", "tensorflow"},
    "highway_keras/analysis/plots.py": {"matplotlib"},
    "highway_keras/layers/fused_blend.py": {"tensorflow"},
    "highway_keras/layers/scan.py": {"tensorflow"},
}


@cache
def sources() -> dict[str, Path]:
    """Returns the files of the three packages by module name."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """Returns the imports of a module: our own modules in full, others by their top-level package."""
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
    """Returns the package that contains a module."""
    return module if sources()[module].name == "__init__.py" else module.rpartition(".")[0]


def is_init(module: str) -> bool:
    """Returns True for the `__init__` of a package, which may import from the package itself."""
    return sources()[module].name == "__init__.py"


def cycles(arrows: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Returns the strongly connected components with more than one node (Tarjan)."""
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


def test_a_cycle_is_found():
    arrows = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": [], "e": ["a"]}
    assert cycles(arrows) == [{"b", "c"}]


def test_files_have_no_import_cycle():
    ours = sources().keys()
    found = cycles({module: sorted(imports(module) & ours) for module in ours})
    assert found == []


def test_folders_have_no_import_cycle():
    arrows: dict[str, set[str]] = {}
    for module in sources():
        here = folder(module)
        below = f"{here}." if is_init(module) else "\0"
        others = {folder(other) for other in imports(module) & sources().keys()}
        arrows.setdefault(here, set()).update(name for name in others if name != here and not name.startswith(below))
    found = cycles({name: sorted(others) for name, others in arrows.items()})
    assert found == []


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_of_the_program_imports_only_its_dependencies(part):
    prefix = f"pipelines.{part}"
    modules = [name for name in sources() if name == prefix or name.startswith(f"{prefix}.")]
    assert modules
    violations = {
        f"{module} -> {other}"
        for module in modules
        for other in imports(module)
        if other.startswith("pipelines.") and other.split(".")[1] not in ALLOWED[part] | {part}
    }
    assert violations == set()


def test_every_part_of_the_program_has_a_rule():
    parts = {name.split(".")[1] for name in sources() if name.startswith("pipelines.")}
    assert parts == {*ALLOWED, "__main__"}


def test_nothing_imports_a_verb():
    violations = {
        f"{module} -> {other}"
        for module in sources()
        for other in imports(module)
        if other.startswith("pipelines.verbs.") and module != "pipelines.__main__"
    }
    assert violations == set()


def test_the_library_imports_keras_and_numpy_only():
    allowed = {"keras", "numpy", *sys.stdlib_module_names}
    violations = {
        f"{module} -> {other}"
        for module, path in sources().items()
        if module.partition(".")[0] == "highway_keras"
        for other in imports(module)
        if other.partition(".")[0] != "highway_keras"
        and other not in allowed | LIBRARY_EXCEPTIONS.get(str(path.relative_to(ROOT)), set())
    }
    assert violations == set()


def test_the_library_needs_its_exceptions():
    found = {
        str(path.relative_to(ROOT)): imports(module) & {"jax", "matplotlib", "tensorflow", "torch"}
        for module, path in sources().items()
        if module.partition(".")[0] == "highway_keras"
    }
    assert {path: names for path, names in found.items() if names} == LIBRARY_EXCEPTIONS


def test_the_endpoint_imports_neither_tensorflow_nor_the_program():
    violations = {
        f"{module} -> {other}"
        for module in sources()
        if module.partition(".")[0] == "serving"
        for other in imports(module)
        if other.partition(".")[0] in {"highway_keras", "jax", "keras", "pipelines", "tensorflow", "torch"}
    }
    assert violations == set()

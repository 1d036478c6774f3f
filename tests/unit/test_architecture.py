"""The import rules of the packages: allowed directions, and no cycles; and class names that are unique.

Every import counts, also inside a function or under TYPE_CHECKING.
"""

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from configparser import ConfigParser
from functools import cache
from pathlib import Path

import pytest

from pipelines.studies import _MODULES
from tests.modules import PACKAGES, ROOT, sources

USERS = ("benchmarks", "tests")

# What each part of the program may import: other parts, the library, the endpoint. `core` is the bottom layer; nothing
# imports `verbs`.
ALLOWED = {
    "core": {"highway_keras", "serving"},
    "recipes": {"core"},
    "data": {"core", "serving"},
    "training": {"core", "data", "highway_keras"},
    "tuning": {"core", "data", "recipes", "training", "highway_keras"},
    "analysis": {"core", "data", "training", "highway_keras"},
    "export": {"core", "data", "training", "highway_keras", "serving"},
    "inference": {"core", "data", "serving"},
    "fit": {"core", "data", "training", "export", "highway_keras"},
    "studies": {"core", "data", "recipes", "training", "tuning", "analysis", "highway_keras"},
    "verbs": {
        *("core", "data", "recipes", "training", "tuning", "analysis", "export", "inference", "fit", "studies"),
        *("highway_keras", "serving"),
    },
}

# The arrows of the endpoint, all in use; "" is the modules in no folder. HTTP and gRPC do not know each other.
ALLOWED_IN_SERVING = {
    "": set(),
    "messages": set(),
    "protocols": {"", "messages"},
    "engine": {"", "protocols"},
    "tf_serving": {"", "engine", "messages"},
    "requests": {"", "engine"},
    "http": {"", "engine", "protocols", "requests", "tf_serving"},
    "rpc": {"", "engine", "messages", "protocols", "requests"},
    "endpoint": {"", "engine", "http", "rpc"},
}

# Backend-specific primitives, each behind one function, and the plots.
LIBRARY_EXCEPTIONS = {
    "highway_keras/analysis/compiling.py": {"tensorflow", "torch"},
    "highway_keras/analysis/gradients.py": {"jax", "tensorflow", "torch"},
    "highway_keras/analysis/plots.py": {"matplotlib"},
    "highway_keras/layers/fused_blend.py": {"tensorflow"},
    "highway_keras/layers/equations.py": {"torch"},
    "highway_keras/layers/layer_math.py": {"torch"},
    "highway_keras/layers/normalization.py": {"tensorflow"},
    "highway_keras/layers/replicas.py": {"tensorflow"},
    "highway_keras/layers/scan.py": {"tensorflow", "torch"},
}

# Modules that import others by a name in a string, which the rules cannot follow: readers of weights by the suffix of
# a file, studies and verbs by their names, functions of the user's own.
BY_NAME = {
    "highway_keras.weights.files",
    "pipelines.core.user_code",
    "pipelines.studies",
    "pipelines.verbs.cli",
    "pipelines.verbs.completion",
}

# Modules that import Ray, when they are asked to: it takes seconds, and is not installed with the program.
ON_RAY = {"pipelines.core.cluster"}

# Modules that import fsspec, for places that are given by a URL.
ON_FSSPEC = {"pipelines.core.url", "serving.bucket"}

# Modules that read the words of the process and are no command line: the record of how a run was started, and the task
# that a process gets from its parent.
OTHER_READERS_OF_WORDS = {"pipelines.core.environment", "pipelines.training.processes.task"}

# Packages in requirements/serving.in, tracing.in and buckets.in, and the modules of another name that they install,
# with the dependencies that the endpoint uses directly.
SERVING_MODULES = {
    "fastapi": {"fastapi", "starlette"},
    "grpcio": {"grpc"},
    "grpcio-health-checking": {"grpc_health"},
    "opentelemetry-sdk": {"opentelemetry"},
    "pillow": {"PIL"},
    "protobuf": {"google"},
}


def part_of(module: str) -> str:
    """Returns the part of `pipelines` that a module belongs to, or its package if that is another."""
    package, *below = module.split(".")
    return below[0] if package == "pipelines" and below else package


@cache
def everything() -> dict[str, Path]:
    """Returns the files of the packages, the benchmarks and the tests by module name."""
    return sources((*PACKAGES, *USERS))


@cache
def imports(module: str) -> frozenset[str]:
    """Returns the imports of a module: our own modules in full, others by their top-level package."""
    known, found = everything(), set()
    for node in ast.walk(ast.parse(known[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # The wheel renames packages, so only tests may import relatively.
            assert node.level == 0 or module.startswith("tests."), f"{module} imports relatively"
            above = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= names & known.keys()
            if names - known.keys():
                found.add(base)
    return frozenset(name if name in known else name.partition(".")[0] for name in found) - {module}


def folder(module: str) -> str:
    """Returns the package that contains a module."""
    return module if is_init(module) else module.rpartition(".")[0]


def is_init(module: str) -> bool:
    """Returns True for the `__init__` of a package, which may import from the package itself."""
    return everything()[module].name == "__init__.py"


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
    ours = everything().keys()
    found = cycles({module: sorted(imports(module) & ours) for module in ours})
    assert found == []


def test_folders_have_no_import_cycle():
    arrows: dict[str, set[str]] = {}
    for module in everything():
        here = folder(module)
        below = f"{here}." if is_init(module) else "\0"
        others = {folder(other) for other in imports(module) & everything().keys()}
        arrows.setdefault(here, set()).update(name for name in others if name != here and not name.startswith(below))
    found = cycles({name: sorted(others) for name, others in arrows.items()})
    assert found == []


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_of_the_program_imports_only_its_dependencies(part):
    modules = [name for name in sources() if part_of(name) == part]
    assert modules
    violations = {
        f"{module} -> {other}"
        for module in modules
        for other in imports(module) & sources().keys()
        if part_of(other) not in ALLOWED[part] | {part}
    }
    assert violations == set()


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_of_the_program_needs_the_packages_it_may_import(part):
    found = {part_of(other) for module in sources() if part_of(module) == part for other in imports(module)}
    assert found & set(PACKAGES) == ALLOWED[part] & set(PACKAGES)


def test_every_part_of_the_program_has_a_rule():
    parts = {name.split(".")[1] for name in sources() if name.startswith("pipelines.")}
    assert parts == {*ALLOWED, "__main__"}


def test_a_folder_of_the_endpoint_imports_only_its_dependencies():
    found: dict[str, set[str]] = {}
    for module in sources():
        if module.startswith("serving."):
            here = folder(module).removeprefix("serving").removeprefix(".")
            others = {folder(other) for other in imports(module) if other.startswith("serving.")}
            found.setdefault(here, set()).update(name.removeprefix("serving").removeprefix(".") for name in others)
    assert {here: others - {here} for here, others in found.items()} == ALLOWED_IN_SERVING


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


def installed_by(files: Iterable[Path]) -> set[str]:
    """Returns the modules that the packages in files of requirements install."""
    packages = re.findall(r"^([a-z][\w-]*)", "".join(file.read_text() for file in files), re.MULTILINE)
    assert packages
    allowed = set().union(*(SERVING_MODULES.get(name, {name.replace("-", "_")}) for name in packages))
    assert not allowed & {"highway_keras", "jax", "keras", "pipelines", "tensorflow", "torch"}
    return allowed


def test_the_endpoint_imports_only_its_requirements():
    allowed = installed_by(ROOT / "requirements" / f"{name}.in" for name in ("serving", "tracing", "buckets"))
    violations = {
        f"{module} -> {other}"
        for module in sources()
        if module.partition(".")[0] == "serving"
        for other in imports(module)
        if other.partition(".")[0] not in {"serving", *allowed, *sys.stdlib_module_names}
    }
    assert violations == set()


def test_prediction_needs_no_more_than_the_extra_serving():
    settings = ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    files = settings["options.extras_require"]["serving"].removeprefix("file: ").split(", ")
    allowed = installed_by(ROOT / file for file in files)
    needed = {
        other
        for module in sources()
        if module.startswith("pipelines.inference.")
        for other in imports(module)
        if other.partition(".")[0] not in {*PACKAGES, *sys.stdlib_module_names}
    }
    assert needed
    assert needed <= allowed


def test_the_packages_import_neither_benchmarks_nor_tests():
    violations = {
        f"{module} -> {other}" for module in sources() for other in imports(module) if other.partition(".")[0] in USERS
    }
    assert violations == set()


def test_only_verbs_parse_a_command_line():
    parsers = {"argparse", "pipelines.core.parsing", "tyro"}
    found = {
        module
        for module in sources()
        if module.startswith("pipelines.") and not module.startswith("pipelines.verbs.") and imports(module) & parsers
    }
    assert found == {"pipelines.core.parsing"}
    readers = {module for module, path in sources().items() if "sys.argv" in path.read_text()}
    assert {module for module in readers if not module.startswith("pipelines.verbs.")} == OTHER_READERS_OF_WORDS


def test_ray_is_imported_in_few_places_and_only_when_it_is_used():
    assert {module for module in everything() if "ray" in imports(module)} == {*ON_RAY, "tests.ray_cluster"}
    for module in ON_RAY:
        top = ast.parse(sources()[module].read_text()).body
        assert not [name for node in top if isinstance(node, ast.Import) for name in node.names if name.name == "ray"]


def test_fsspec_is_imported_in_few_places_and_only_when_it_is_used():
    assert {module for module in sources() if imports(module) & {"fsspec", "gcsfs", "s3fs"}} == ON_FSSPEC
    for module in ON_FSSPEC:
        top = ast.parse(sources()[module].read_text()).body
        assert not [
            node for node in top if isinstance(node, ast.Import | ast.ImportFrom) and "fsspec" in ast.dump(node)
        ]


def test_modules_are_imported_by_name_in_few_places():
    assert {module for module, path in sources().items() if "import_module(" in path.read_text()} == BY_NAME
    assert not [path for path in sources().values() if "__import__(" in path.read_text()]


def test_each_file_or_folder_of_papers_is_a_study():
    prefix = "pipelines.studies.papers."
    rooms = {name.removeprefix(prefix).partition(".")[0] for name in sources() if name.startswith(prefix)}
    defined = {module.removeprefix("papers.").partition(".")[0] for module in _MODULES.values()}
    assert rooms == defined


def classes(folders: tuple[str, ...] = PACKAGES) -> list[tuple[str, str]]:
    """Returns the name and the module of each class."""
    return [
        (node.name, module)
        for module, path in sources(folders).items()
        for node in ast.parse(path.read_text()).body
        # Each verb has its own arguments.
        if isinstance(node, ast.ClassDef) and not (module.startswith("pipelines.verbs.") and node.name == "Arguments")
    ]


def repeated(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Returns the modules of each name that occurs more than once."""
    places: dict[str, list[str]] = {}
    for name, module in found:
        places.setdefault(name, []).append(module)
    return {name: modules for name, modules in places.items() if len(modules) > 1}


def test_class_names_are_unique():
    assert repeated((name, module) for name, module in classes() if not name.startswith("_")) == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_class_names_of_a_package_are_unique_even_without_their_underscore(package):
    assert repeated((name.lstrip("_"), module) for name, module in classes((package,))) == {}

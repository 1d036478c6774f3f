"""The command line in a separate process, in an empty folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.verbs.cli import VERBS

HEAVY = ("tensorflow", "keras", "jax", "tensorflow_datasets", "onnxruntime", "onnx", "tf2onnx", "matplotlib")
FULL_DEVICE = Path("/dev/full")


@pytest.fixture
def highway(tmp_path):
    """A function that runs `highway` in an empty folder."""

    # Output is buffered, as in a user's shell.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

    def run(*arguments, stdout=subprocess.PIPE):
        return subprocess.run(
            [sys.executable, "-m", "pipelines", *arguments],
            check=False,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment,
        )

    return run


def modules_imported_by(code):
    script = f"import sys, json\n{code}\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_needs_the_standard_library_only():
    modules = modules_imported_by("from pipelines.verbs.cli import main\nmain(['--help'])")
    assert modules.isdisjoint({*HEAVY, "pydantic", "tyro", "rich", "numpy"})


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_needs_no_framework(verb):
    call = f"try: main(['{verb}', '--help'])\nexcept SystemExit as end: assert end.code == 0"
    modules = modules_imported_by(f"from pipelines.verbs.cli import main\n{call}")
    assert modules.isdisjoint(HEAVY)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_prints_its_usage(highway, verb):
    done = highway(verb, "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith(f"usage: highway {verb}")


def test_recipes_need_no_framework():
    modules = modules_imported_by(
        "from pipelines.verbs.cli import main\nmain(['recipes'])\nmain(['recipes', 'show', 'demo'])"
    )
    assert modules.isdisjoint(HEAVY)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trian", "Did you mean 'train'?"),
        ("train", "which recipe?"),
        ("train mnist_conv_33", "Did you mean 'mnist_conv_32'?"),
        ("train demo --epoch 3", "Did you mean '--epochs'?"),
        ("train demo --momentum 0.9", "Did you mean '--optimizer.momentum'?"),
        ("train demo --epochs 0", "--epochs must be a whole number of at least 1. Received: '0'."),
        ("train demo --epochs many", "--epochs must be a whole number of at least 1. Received: 'many'."),
        ("train demo --optimizer.momentum 9", "must be a number of at least 0 and less than 1. Received: '9'."),
        ("train demo --epochs", "--epochs"),
        ("train mnist_conv_32 --schedule.boundaries 9 5", "boundaries must rise"),
        ("recipes show mnist_conv_33", "Did you mean 'mnist_conv_32'?"),
        ("evaluate", "RUN"),
        ("export", "RUN"),
        ("predict", "MODEL"),
    ],
)
def test_a_user_error_prints_one_message_and_writes_nothing(highway, tmp_path, arguments, message):
    done = highway(*arguments.split())
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not FULL_DEVICE.exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("argument", ["--help", "recipes"])
def test_a_full_disk_is_reported(highway, argument):
    with FULL_DEVICE.open("w") as full:
        done = highway(argument, stdout=full)
    assert done.returncode == 2
    assert "the disk is full" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("argument", ["--help", "recipes"])
def test_a_closed_pipe_prints_no_error(highway, argument):
    read, write = os.pipe()
    os.close(read)
    done = highway(argument, stdout=write)
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == ""

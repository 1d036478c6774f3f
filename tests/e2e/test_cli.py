"""The command line in an empty folder: help, user errors, output that cannot be written, and what is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.verbs.cli import VERBS, main

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


def status_of(words):
    """Runs a command in this process."""
    try:
        return main(words)
    except SystemExit as end:
        return end.code


def test_help_needs_the_standard_library_only():
    modules = modules_imported_by("from pipelines.verbs.cli import main\nmain(['--help'])")
    assert modules.isdisjoint({*HEAVY, "pydantic", "tyro", "rich", "numpy"})


def test_help_and_recipes_need_no_framework():
    commands = [*([verb, "--help"] for verb in VERBS), ["recipes"], ["recipes", "show", "demo"]]
    code = f"""
from pipelines.verbs.cli import main
imported = {{}}
for words in {commands}:
    try:
        assert main(words) == 0
    except SystemExit as end:
        assert end.code == 0
    imported[" ".join(words)] = sorted({{*{HEAVY}}} & {{*sys.modules}})
assert not any(imported.values()), imported
"""
    assert modules_imported_by(code).isdisjoint(HEAVY)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_prints_its_usage(capsys, verb):
    assert status_of([verb, "--help"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith(f"usage: highway {verb}")


ERRORS = [
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
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_a_user_error_prints_one_message_and_writes_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert status_of(arguments.split()) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_process_ends_with_the_status_of_its_command(highway, tmp_path):
    done = highway("train", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: highway train")
    arguments, message = ERRORS[3]
    done = highway(*arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
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

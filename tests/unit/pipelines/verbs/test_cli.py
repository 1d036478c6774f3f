import errno
import importlib.util
import os
import signal
import subprocess
import sys
import types

import pytest

from pipelines.core import guard
from pipelines.core.errors import StoppedError, UserError
from pipelines.core.guard import ENVIRONMENT
from pipelines.verbs import cli


@pytest.fixture
def verb(monkeypatch):
    """A function that makes `highway train` do something else."""

    def does(action):
        module = types.ModuleType("pipelines.verbs.train")
        module.main = action
        monkeypatch.setitem(sys.modules, "pipelines.verbs.train", module)

    return does


def raises(error):
    def action(arguments):
        raise error

    return action


@pytest.mark.parametrize("verb_name", cli.VERBS)
def test_every_verb_has_a_module(verb_name):
    assert importlib.util.find_spec(f"pipelines.verbs.{verb_name}")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_verb(arguments, capsys):
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    for name, summary in cli.VERBS.items():
        assert f"  {name} " in printed
        assert summary in printed


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("highway 0.")


def test_the_verb_gets_the_words_after_it(verb):
    given = []
    verb(given.append)
    assert cli.main(["train", "demo", "--epochs", "3"]) == 0
    assert given == [["demo", "--epochs", "3"]]


def test_the_words_of_the_process(verb, monkeypatch):
    given = []
    verb(given.append)
    monkeypatch.setattr(sys, "argv", ["highway", "train", "demo"])
    assert cli.main() == 0
    assert given == [["demo"]]


def test_an_unknown_verb(capsys):
    assert cli.main(["trian"]) == 2
    assert capsys.readouterr().err.startswith(
        "highway: error: there is no verb 'trian'. Did you mean 'train'? Choices: analyze, completion, "
    )


def test_a_user_error_is_one_message(verb, capsys):
    verb(raises(UserError("no such thing.")))
    assert cli.main(["train"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "highway train: error: no such thing.\n"
    assert captured.out == ""


@pytest.mark.parametrize(
    ("name", "package", "install"),
    [
        ("train", "pydantic", '"highway-keras[cpu]" ([gpu] for CUDA)'),
        ("serve", "pydantic", '"highway-keras[serving]"'),
        # Images of a data set of TFDS.
        ("predict", "tensorflow", '"highway-keras[cpu]" ([gpu] for CUDA)'),
    ],
)
def test_a_missing_package_names_the_extra(name, package, install, monkeypatch, capsys):
    module = types.ModuleType(f"pipelines.verbs.{name}")
    module.main = raises(ModuleNotFoundError(f"No module named '{package}.types'", name=f"{package}.types"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert cli.main([name]) == 2
    assert capsys.readouterr().err == (
        f"highway {name}: error: the package '{package}' is not installed. Without an extra, highway-keras is the "
        f"library alone; this verb needs: pip install {install}\n"
    )


def test_a_missing_backend_names_its_extra(verb, monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(guard, "find_spec", lambda name: None)
    verb(raises(AssertionError("the verb must not start")))
    assert cli.main(["train"]) == 2
    assert capsys.readouterr().err == (
        'highway train: error: KERAS_BACKEND=jax needs JAX, which is not installed: pip install "highway-keras[jax]". '
        "Unset KERAS_BACKEND to use TensorFlow.\n"
    )


def test_a_missing_module_of_the_project_keeps_its_trace(verb):
    verb(raises(ModuleNotFoundError("No module named 'pipelines.x'", name="pipelines.x")))
    with pytest.raises(ModuleNotFoundError):
        cli.main(["train"])


def test_interruption(verb, capsys):
    verb(raises(KeyboardInterrupt()))
    assert cli.main(["train"]) == 130
    assert capsys.readouterr().err == "\nhighway train: interrupted\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_orderly_stop_has_its_own_status(verb, capsys, number, status):
    verb(raises(StoppedError("stopped and saved.", number)))
    assert cli.main(["train"]) == status
    assert capsys.readouterr().err == "highway train: stopped and saved.\n"


def wrapped(error):
    outer = RuntimeError("could not save the model")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "runs/a/model.keras"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError(errno.EFBIG, "File too large"),
        # As h5py and TensorFlow report it.
        OSError("Can't synchronously write data (errno = 28, error message = 'No space left on device', buf = 0x0)"),
        RuntimeError("RESOURCE_EXHAUSTED: runs/a/variables; No space left on device"),
        wrapped(OSError(errno.ENOSPC, "No space left on device")),
    ],
)
def test_a_full_disk_is_not_a_bug(verb, capsys, error):
    verb(raises(error))
    assert cli.main(["train"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("highway train: error: the disk is full (")
    assert "Free some space" in printed
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize("error", [ValueError("a bug"), OSError(errno.EIO, "Input/output error"), wrapped(None)])
def test_a_bug_keeps_its_trace(verb, error):
    verb(raises(error))
    with pytest.raises(type(error)) as caught:
        cli.main(["train"])
    assert caught.value is error


def test_the_environment_is_set_before_the_verb_runs(verb, monkeypatch):
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    seen = {}
    verb(lambda arguments: seen.update(os.environ))
    assert cli.main(["train"]) == 0
    assert {name: seen[name] for name in ENVIRONMENT} == ENVIRONMENT
    assert seen["KERAS_BACKEND"] == "tensorflow"
    assert seen["ORT_DISABLE_TELEMETRY"] == "1"


def test_a_backend_that_no_verb_runs_on_is_refused_before_any_framework(verb, monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "jaxx")
    verb(raises(AssertionError("the verb began")))
    assert cli.main(["train"]) == 2
    message = "KERAS_BACKEND must be 'tensorflow' or 'jax', or unset. Received: 'jaxx'."
    assert capsys.readouterr().err == f"highway train: error: {message}\n"
    # Needs no Keras.
    assert cli.main(["release", "nothing"]) == 2
    assert "KERAS_BACKEND" not in capsys.readouterr().err


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_outputs_are_no_error(closed):
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m pipelines recipes {closed}"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_environment_of_the_user_is_kept(verb, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    verb(lambda arguments: None)
    assert cli.main(["train"]) == 0
    assert os.environ["KERAS_BACKEND"] == "jax"

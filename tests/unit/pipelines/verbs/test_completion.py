import shutil
import subprocess

import pytest

from pipelines import recipes, studies
from pipelines.verbs.cli import VERBS, main


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Returns the path of the script for a shell."""

    def write(shell, capsys):
        assert main(["completion", shell]) == 0
        path = tmp_path_factory.mktemp("completion") / shell
        path.write_text(capsys.readouterr().out)
        return path

    return write


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([""], {*VERBS}),
        (["tr"], {"train"}),
        (["train", "cifar10_modern_p"], {"cifar10_modern_plain"}),
        (["train", "demo", "--optimizer.mo"], {"--optimizer.momentum"}),
        (["train", "demo", "--schedule.b"], {"--schedule.boundaries"}),
        (["tune", "--search.transform"], {"--search.transform-bias"}),
        (["train", "--res"], {"--resume"}),
        (["train", "demo", "--reci"], set()),
        (["data", "sh"], {"show"}),
        (["reproduce", "depth"], {name for name in studies.names() if name.startswith("depth")}),
        (["recipes", "show", "fit"], {name for name in recipes.names() if name.startswith("fit")}),
        (["serve", "--por"], {"--port"}),
    ],
)
def test_bash_completes_a_word(script, capsys, words, found):
    line = " ".join(map(repr, ["highway", *words]))
    program = f'source "$1"; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _highway; printf "%s\\n" "${{COMPREPLY[@]}}"'
    run = subprocess.run(
        ["bash", "-c", program, "bash", str(script("bash", capsys))], capture_output=True, text=True, check=True
    )
    assert {*run.stdout.split()} == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_has_every_verb_and_is_valid(script, capsys, shell):
    path = script(shell, capsys)
    assert all(verb in path.read_text() for verb in VERBS)
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(path)], check=True)

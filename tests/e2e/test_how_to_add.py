"""The examples of docs/how-to-add.md, added to a copy of the code, with the commands of each section."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to-add.md").read_text(encoding="utf-8")
SECTIONS = {
    title: re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for title, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
# A few steps of small nets, one arm of the study, and the recipe's run in place of the demo's for the export.
BUDGET = {
    "train my_recipe": "train my_recipe --subset.train 200",
    "train demo --optimizer": "train mnist_dense_10 --data mnist_5k --model.depth 3 --subset.train 200 --optimizer",
    "--epochs 4": "--epochs 1",
    "export runs/demo": "export runs/my_recipe --to models/demo --pictures natural",
    "--budget 0.001": "--budget 1e-06 --arms highway",
}
# The tests of the repository, minutes of training, and a run of hours.
NOT_RUN = ("python -m pytest", "highway train demo", "highway reproduce my-study --workers")
# Runs the commands one after the other in one process, the runs of a study included.
PROGRAM = """
import shlex, sys
from pathlib import Path

def run(line):
    program, *words = shlex.split(line)
    if program == "highway" and words[0] != "serve":
        from pipelines.verbs.cli import main
        if words[0] == "reproduce":
            from pipelines.studies.run import task, training
            training.train_all = lambda members, **_: [task.act(member.task) for member in members]
        try:
            return main(words)
        except SystemExit as end:
            return end.code
    if program == "python":
        exec(words[1], {})
    if program == "curl":
        from fastapi.testclient import TestClient
        from serving.engine.settings import Settings
        from serving.http.app import make_app
        with TestClient(make_app(Settings(models=Path()))) as client:
            for path in (words[-1].removeprefix("http://127.0.0.1:8501"), "/my_path"):
                print(client.get(path).text)
    return 0

for line in sys.stdin.read().splitlines():
    print("==", line, flush=True)
    if status := run(line):
        sys.exit(f"{line}: {status}")
"""


def commands(title):
    """Returns the commands of a section that are run."""
    blocks = [code for language, code in SECTIONS[title] if language == "sh"]
    lines = [line.partition("  #")[0] for block in blocks for line in block.splitlines()]
    for full, small in BUDGET.items():
        lines = [line.replace(full, small) for line in lines]
    return [line for line in lines if not line.startswith(NOT_RUN)]


def add(code, root):
    """Writes the new files of the page, and changes the others as its diffs say.

    A hunk has the lines that it adds and removes, and those around them that show where.
    """
    for language, text in code:
        if language == "python":
            head, _, content = text.partition("\n")
            ast.parse(content)
            (root / head.removeprefix("# ")).write_text(content)
        elif language == "diff":
            for name, hunks in re.findall(r"^--- (\S+)\n(.*?)(?=^--- |\Z)", text, re.MULTILINE | re.DOTALL):
                path, lines = root / name, [hunk.splitlines() for hunk in hunks.split("@@\n")]
                for hunk in lines:
                    assert {line[0] for line in hunk} <= set("+- "), hunk
                    before, after = ("".join(f"{line[1:]}\n" for line in hunk if line[0] != left) for left in "+-")
                    assert path.read_text().count(before) == 1, (name, before)
                    path.write_text(path.read_text().replace(before, after))
                ast.parse(path.read_text())


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A copy of the packages with everything that the page adds."""
    folder = tmp_path_factory.mktemp("added")
    for package in ("highway_keras", "pipelines", "serving"):
        shutil.copytree(ROOT / package, folder / package)
    for blocks in SECTIONS.values():
        add(blocks, folder)
    return folder


def output(home, lines, **environment):
    """Runs commands in one process, and returns what each of them printed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="\n".join(lines), text=True, capture_output=True, check=False, cwd=home,
        env={**os.environ, "PYTHONPATH": str(home), "KERAS_BACKEND": "tensorflow", **environment},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    printed = re.findall(r"^== (.*)\n((?:(?!== ).*\n?)*)", done.stdout, re.MULTILINE)
    assert [line for line, _ in printed] == lines
    return dict(printed)


def test_every_section_has_an_example_and_commands():
    assert len(SECTIONS) == 6
    for title, blocks in SECTIONS.items():
        languages = {language for language, _ in blocks}
        assert languages >= {"diff", "sh"}, title
        assert languages <= {"python", "diff", "sh"}, title
        made = set(re.findall(r"\bmy[_-]\w+", "".join(code for language, code in blocks if language == "sh")))
        examples = "".join(code for language, code in blocks if language != "sh")
        # Twins are derived.
        assert all(name.removesuffix("_plain") in examples for name in made), title


def test_what_needs_no_framework(home):
    lines = [line for line in commands("An optimizer") if "--help" in line]
    lines = [commands("A recipe")[0], *lines, *commands("An endpoint route")]
    recipe, fields, _, answers = output(home, lines).values()
    assert "my_recipe" in recipe
    assert "--optimizer.epsilon" in fields
    description, answer = answers.splitlines()
    assert '"/my_path"' in description
    assert answer == "0"


@pytest.mark.slow
def test_what_trains_and_exports(home, shared, mnist_5k):
    from tests.finished_study import prepare

    data = home / "data"
    data.mkdir()
    for source in (mnist_5k / "mnist_5k", shared("studied", prepare) / "mnist"):
        (data / source.name).symlink_to(source)
    titles = ("A recipe", "A net", "A study", "An export form", "An optimizer")
    lines = [line for title in titles for line in commands(title)]
    printed = output(home, lines, TFDS_DATA_DIR=str(data))
    counts = [re.search(r"Trainable params: ([\d,]+)", printed[line])[1] for line in commands("A net")]
    family = re.search(r'"my_net".*?```', PAGE, re.DOTALL)[0]
    assert [int(count.replace(",", "")) for count in counts] == [
        int(found) for found in re.findall(r"\b\d+_\d+\b", family)
    ]
    for run in ("my_recipe", "my_optimizer"):
        assert (home / "runs" / run / "report.md").is_file()
    assert (home / "studies" / "trial" / "figures" / "learning_curves.png").is_file()
    (version,) = (home / "models" / "demo").glob("[0-9]*")
    assert (version / "model.fused.onnx").is_file()
    assert '"my_form"' in (version / "manifest.json").read_text()

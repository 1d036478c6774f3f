import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from pipelines.verbs.cli import main


@pytest.fixture
def in_an_empty_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_out_writes_a_row_for_each_image_and_says_so(model, folder, tmp_path, capsys):
    (folder / "0" / "bad.png").touch()
    out = tmp_path / "out.parquet"
    words = ["predict", str(model), str(folder), "--out", str(out), "--top", "1", "--explain"]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 31 images; 1 unreadable, see the column error; ")
    found = pq.read_table(out).to_pylist()
    assert {len(row["top"]) for row in found if row["top"]} == {1}
    assert {len(row["gate_means"]) for row in found if row["gate_means"]} == {2}
    assert main(words) == 0
    assert "already complete, with 31 images" in capsys.readouterr().out


def test_without_out_top_counts_too(model, folder, capsys):
    assert main(["predict", str(model / "1"), str(folder / "0" / "00.png"), "--top", "1", "--format", "json"]) == 0
    assert capsys.readouterr().out.count('"label"') == 1


@pytest.mark.usefixtures("in_an_empty_place")
@pytest.mark.parametrize(
    "mistake",
    [
        (["--explain"], "--explain needs --out FILE.parquet"),
        (["--data-dir", "data"], "--data-dir needs --out FILE.parquet"),
        (["--cluster", "auto"], "--cluster needs --out FILE.parquet, or --out with a new folder or the URL of either"),
        (["--format", "json", "--out", "a.parquet"], "--format has no effect with --out"),
        (["--top", "0"], "--top must be a whole number of at least 1"),
        (["--out", "a.csv"], "must name a file that ends in .parquet"),
        (
            ["nothing/*.png", "--out", "a.parquet"],
            "nothing/*.png is not a file or a folder, and matches nothing as a glob",
        ),
    ],
)
def test_errors_are_reported_and_leave_nothing(model, folder, tmp_path, capsys, mistake):
    words, message = mistake
    before = sorted(tmp_path.iterdir())
    assert main(["predict", str(model), str(folder), *words]) == 2
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_images_need_no_framework(model, folder, tmp_path):
    program = (
        "import sys; from pipelines.verbs.cli import main; status = main(sys.argv[1:]); "
        "print({'tensorflow', 'keras', 'jax', 'matplotlib'} & set(sys.modules)); sys.exit(status)"
    )
    words = [sys.executable, "-c", program, "predict", model, folder, "--out", tmp_path / "out.parquet"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"

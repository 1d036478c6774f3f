import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from rich.console import Console

from pipelines.core.errors import UserError
from pipelines.inference import job as jobs
from pipelines.inference.job import PredictionJob, run
from pipelines.verbs.cli import main
from serving.errors import OutputError
from serving.model import Model
from tests.digits import ten_digits


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
    said = f"{out} is already complete, with 31 images; 1 unreadable, see the column error. Remove it to start over.\n"
    assert capsys.readouterr().out == said


def test_a_result_that_is_only_assembled_was_not_complete_before(model, folder, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out.parquet"
    words = ["predict", str(model), str(folder), "--out", str(out)]
    with monkeypatch.context() as killed:
        killed.setattr(jobs.Parts, "finish", lambda *_: None)
        assert main(words) == 0
    assert not out.exists()
    capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr().out == f"{out}: 30 images (30 by earlier attempts)\n"


@pytest.fixture
def drawn(tmp_path):
    """A folder with images of no digit, one and two, and a file that is no image."""
    folder = tmp_path / "drawn"
    folder.mkdir()
    one = np.pad(ten_digits()[7], 8)
    for name, image in (("0.png", np.zeros((200, 200))), ("1.png", one), ("2.png", np.hstack([one, one]))):
        Image.fromarray(255 - image.astype(np.uint8)).save(folder / name)
    (folder / "bad.png").touch()
    return folder


def test_the_digits_of_each_image_are_counted(model, folder, drawn, tmp_path):
    out = tmp_path / "out.parquet"
    assert main(["predict", "mnist", str(drawn), "--out", str(out)]) == 0
    found = pq.read_table(out)
    assert found["digits"].to_pylist() == [0, 1, 2, None]
    assert found["label"][1].as_py() == "7"
    # This model, like those that were exported before digits were counted, does not count them.
    assert main(["predict", str(model), str(folder), "--out", str(tmp_path / "others.parquet")]) == 0
    assert "digits" not in pq.read_table(tmp_path / "others.parquet").column_names


def test_results_without_the_number_of_digits_stay_and_are_not_mixed_with_others(drawn, tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.inference.net_inputs.BATCH", 1)
    monkeypatch.setattr(jobs, "GROUP", 1)
    job = PredictionJob(Path("mnist"), (str(drawn),), tmp_path / "begun.parquet", 3)
    complete = PredictionJob(Path("mnist"), (str(drawn),), tmp_path / "complete.parquet", 3)
    with monkeypatch.context() as earlier:
        earlier.setattr(Model, "counts_digits", False)
        run(complete, Console(file=io.StringIO()))
        earlier.setattr(jobs.Parts, "finish", lambda *_: None)
        run(job, Console(file=io.StringIO()))
    assert run(complete, Console(file=io.StringIO())).resumed == 4
    parts = tmp_path / ".begun.parquet.parts"
    before = sorted(parts.iterdir())
    message = f"the parts in {parts} were written by an earlier version of this program without the column digits. "
    with pytest.raises(UserError, match=message):
        run(job, Console(file=io.StringIO()))
    assert sorted(parts.iterdir()) == before


@pytest.fixture
def not_finite(monkeypatch, folder):
    """Makes the model compute NaN or infinity for a white image, the first of the folder, and returns its name."""
    Image.new("L", (3, 4), 255).save(folder / "0" / "00.png")
    predict = Model.predict

    def computed(model, images):
        outputs = predict(model, images)
        white = (images == 255).all((1, 2, 3))
        outputs["probabilities"][white, 1] = np.nan
        outputs["gate_means"][white] = np.inf
        return outputs

    monkeypatch.setattr(Model, "predict", computed)
    return str(folder / "0" / "00.png")


def test_nan_is_an_error_and_no_class(model, folder, tmp_path, not_finite, capsys):
    out = tmp_path / "out.parquet"
    said = f"the model computes NaN or infinity as probabilities of {not_finite}. Use another version of it."
    assert main(["predict", str(model), str(folder), "--out", str(out), "--explain"]) == 0
    first, *others = pq.read_table(out).to_pylist()
    assert (first.pop("path"), first.pop("error")) == (not_finite, said)
    assert {*first.values()} == {None}
    assert len(others) == 29
    assert all(np.isfinite(row["probabilities"] + row["gate_means"]).all() and not row["error"] for row in others)
    capsys.readouterr()
    with pytest.raises(SystemExit) as status:
        main(["predict", str(model / "1"), str(folder / "0"), "--format", "json"])
    captured = capsys.readouterr()
    assert (status.value.code, captured.err) == (1, f"{said}\n")
    assert [json.loads(line)["file"] for line in captured.out.splitlines()] == sorted(map(str, folder.glob("0/*")))[1:]


def test_a_model_that_fails_is_at_fault(model, folder, tmp_path, monkeypatch, capsys):
    def fail(*_, **__):
        raise OutputError("version 1 of model 'digits' failed: Gather")

    out, first = tmp_path / "out.parquet", str(folder / "0" / "00.png")
    said = "version 1 of model 'digits' failed: Gather. Use another version of it."
    with monkeypatch.context() as patched:
        patched.setattr(Model, "see", fail)
        assert main(["predict", str(model), str(folder), "--out", str(out)]) == 0
        assert pq.read_table(out).to_pylist()[0]["error"] == f"{first}: {said}"
    monkeypatch.setattr(Model, "predict", fail)
    for words in (["--out", str(tmp_path / "other.parquet")], []):
        capsys.readouterr()
        assert main(["predict", str(model), first, *words]) == 2
        assert capsys.readouterr().err.endswith(f"highway predict: error: {said}\n")


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

import pytest

from pipelines.training import metrics_file
from pipelines.training.probe import cut


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "watched.csv"
    for step in (0, 10, 120, 1200):
        metrics_file.append(made, {"step": step, "norm": 0.5})
    return made


@pytest.mark.parametrize(("step", "kept"), [(0, []), (1, [0]), (119, [0, 10]), (120, [0, 10, 120]), (10**6, None)])
def test_rows_after_the_step_are_removed(path, step, kept):
    cut(path, step)
    assert [row["step"] for row in metrics_file.read(path)] == ([0, 10, 120, 1200] if kept is None else kept)


@pytest.mark.parametrize("half", ["12", "1300,0.", "1300,0.5"])
def test_a_row_half_written_by_a_killed_process_is_removed(path, half):
    whole = path.read_bytes()
    with path.open("a") as file:
        file.write(half)
    cut(path, 1250)
    assert path.read_bytes() == whole


def test_a_half_written_header_is_removed(tmp_path):
    path = tmp_path / "watched.csv"
    path.write_text("step,no")
    cut(path, 5)
    assert not path.exists()
    cut(path, 5)

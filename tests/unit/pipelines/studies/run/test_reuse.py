import pytest

from pipelines.core import run
from pipelines.core.run import MEASURED
from pipelines.studies.run import reuse
from pipelines.studies.run.plan import FILE
from tests.toy_data import toy_config
from tests.unit.pipelines.studies.fake import RECORD, evaluated


def made(study, name, config, record=RECORD, done=True):
    """A run of a study, as it lies in its folder."""
    path = study / "runs" / name
    run.create(path, config, record)
    (path / MEASURED).touch()
    (path / "model.keras").write_text("weights")
    if done:
        (path / "evaluation.json").write_text(evaluated(0.9).model_dump_json())
        (path / "report.md").touch()
    (study / FILE).touch()
    return path


@pytest.fixture
def other(tmp_path):
    return tmp_path / "other"


def found(tmp_path, config, backend="tensorflow", weights="final"):
    return reuse.find(config, weights, backend, tmp_path / "mine")


def test_a_run_of_another_study_is_found_and_copied(tmp_path, other):
    config = toy_config(seed=3)
    path = made(other, "arm-seed-3", config)
    assert found(tmp_path, config) == path
    to = tmp_path / "mine" / "runs" / "mine-seed-3"
    reuse.take(path, to)
    assert run.open_run(to).config == config
    assert (to / "model.keras").read_text() == "weights"
    # What the other study asked of it is not what this one asks.
    assert not (to / MEASURED).exists()
    assert [each.name for each in to.parent.iterdir()] == ["mine-seed-3"]
    assert (path / MEASURED).exists()


def test_a_run_that_diverged_is_a_result(tmp_path, other):
    path = made(other, "arm-seed-0", toy_config(), RECORD.model_copy(update={"state": "diverged"}), done=False)
    assert found(tmp_path, toy_config()) == path


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (toy_config(epochs=9), {}),
        (toy_config(seed=1), {}),
        (toy_config(), {"backend": "jax"}),
        (toy_config(), {"weights": "best"}),
    ],
    ids=["another training", "another seed", "another backend", "other weights evaluated"],
)
def test_another_run_is_not_taken_for_it(tmp_path, other, config, changes):
    made(other, "arm-seed-0", toy_config())
    assert found(tmp_path, config, **changes) is None


def test_what_is_not_done_or_damaged_or_no_study_is_passed_over(tmp_path, other):
    made(other, "arm-seed-0", toy_config(), done=False)
    made(other, "damaged-seed-0", toy_config())
    (other / "runs" / "damaged-seed-0" / "run.json").write_text("{")
    made(tmp_path / "mine", "arm-seed-0", toy_config())
    (made(tmp_path / "none", "arm-seed-0", toy_config()).parents[1] / FILE).unlink()
    assert found(tmp_path, toy_config()) is None


def test_nothing_is_left_of_a_copy_that_fails(tmp_path, other, monkeypatch):
    path = made(other, "arm-seed-0", toy_config())

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reuse, "flush", full)
    to = tmp_path / "mine" / "runs" / "arm-seed-0"
    with pytest.raises(OSError, match="No space"):
        reuse.take(path, to)
    assert list(to.parent.iterdir()) == []

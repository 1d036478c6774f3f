import numpy as np
import pytest

from pipelines.core.config import Config, ModelConfig
from pipelines.core.errors import UserError
from pipelines.studies.framework.results import Results
from tests.unit.pipelines.studies.fake import result
from tests.unit.pipelines.studies.probed_runs import with_probe

CONFIG = Config(recipe="a", model=ModelConfig(preset="mnist_dense_50"), data="mnist")
ROWS = [{"step": 0, "norm": 1.0}, {"step": 46, "norm": 0.25}]


def runs(path, *tables):
    return Results(
        with_probe(result("a", CONFIG, seed, None if rows is None else 0.9, path), rows or ROWS[:1])
        for seed, rows in enumerate(tables)
    )


def test_probed_columns(tmp_path):
    other = [{**row, "norm": row["norm"] / 2} for row in ROWS]
    # The second run diverged.
    found = runs(tmp_path, ROWS, None, other).probed("a")
    assert found["step"].tolist() == [0, 46]
    np.testing.assert_array_equal(found["norm"], [[1, 0.25], [0.5, 0.125]])


def test_diverged_nets_have_no_probe(tmp_path):
    assert runs(tmp_path, None, None).probed("a") == {}


@pytest.mark.parametrize("rows", [ROWS[:1], []])
def test_a_run_with_missing_probes_is_reported(tmp_path, rows):
    results = runs(tmp_path, ROWS, ROWS[:1])
    path = results.of("a")[1].run.path
    if not rows:
        (path / "watched.csv").unlink()
    with pytest.raises(UserError, match=rf"{path}/watched.csv lacks some .* Remove {path} and repeat"):
        results.probed("a")

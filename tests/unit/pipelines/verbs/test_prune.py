from pathlib import Path

import pytest

from pipelines.core.url import Url
from pipelines.verbs.prune import folder


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (Path("runs/demo"), Path("runs/demo-pruned")),
        (Path("inner/.."), "demo-pruned"),
        (Path(), "demo-pruned"),
        (Path("inner"), Path("inner-pruned")),
        (Url("memory://runs/demo"), Url("memory://runs/demo-pruned")),
    ],
)
def test_a_pruned_run_is_next_to_the_run(tmp_path, monkeypatch, run, expected):
    (here := tmp_path / "demo" / "inner").mkdir(parents=True)
    monkeypatch.chdir(here.parent)
    assert folder(run) == (tmp_path / expected if isinstance(expected, str) else expected)

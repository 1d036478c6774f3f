"""`highway serve` at saturation while faults arrive at random, for a moment; `make bench BENCH=faults` takes longer."""

import json
import shutil

import pytest

from benchmarks.faults import LOST, soak
from tests.digits import all_digits


@pytest.mark.slow
def test_no_answer_is_wrong_and_no_accepted_request_lost_under_random_faults(repository, tmp_path):
    version = tmp_path / "models" / "dense" / "1"
    shutil.copytree(repository / "digits" / "1", version)
    manifest = version / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "name": "dense"}))
    tally = soak(version, all_digits()[0][:256, ..., None], 20.0).tally
    assert tally.wrong == []
    counts = tally.counts
    assert (counts["wrong answers"], counts[LOST], counts["requests without an answer"]) == (0, 0, 0)
    assert all(counts[what] for what in ("right answers", "hostile requests", "restarts")), counts
    assert counts["new versions"] + counts["new versions that are damaged"], counts

"""`highway serve` at saturation while faults arrive at random, for a moment; `make bench BENCH=faults` takes longer."""

import json
import shutil

import pytest

from benchmarks.faults import LOST, soak
from benchmarks.unstable_endpoint import copied
from tests.digits import all_digits


@pytest.mark.slow
def test_no_answer_is_wrong_and_no_accepted_request_lost_under_random_faults(repository, tmp_path):
    version = tmp_path / "models" / "dense" / "1"
    shutil.copytree(repository / "digits" / "1", version)
    manifest = version / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "name": "dense"}))
    versions = [version, copied("cifar10", tmp_path / "models")]
    found = soak(versions, all_digits()[0][:256, ..., None], 20.0)
    counts = found.tally.counts
    assert found.tally.wrong == []
    assert (counts["wrong answers"], counts[LOST], counts["requests without an answer"]) == (0, 0, 0)
    assert all(counts[f"{what}{way}"] for what in ("right answers", "hostile requests") for way in ("", " over gRPC"))
    assert counts["restarts"], counts
    assert any(what.startswith("new versions") for what in counts), counts
    assert found.largest <= found.bound

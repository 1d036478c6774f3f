"""The judgement of requests that got no answer as the endpoint stopped."""

import json

from benchmarks.faults import LOST, Tally, _judge
from benchmarks.unstable_endpoint import Endpoint


def test_the_log_tells_accepted_requests_from_those_that_came_too_late(tmp_path):
    log = tmp_path / "log"
    lines = [{"message": "request", "request_id": f"ask-{status}", "status": status} for status in (200, 499, 503)]
    lines += [{"message": "version loaded", "version": 1}, {"message": "request", "request_id": "other", "status": 200}]
    log.write_text("serving models\n" + "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    tally = Tally(unanswered={"ask-200", "ask-499", "ask-503", "ask-late"})
    _judge(Endpoint(tmp_path, log), tally)
    assert (tally.counts[LOST], len(tally.wrong)) == (1, 1)
    assert sorted(tally.counts.values()) == [1, 1, 2]

from benchmarks.hostile_requests import post
from serving.endpoint.options import LOOPBACK


def test_hostile_requests_are_not_refused_by_their_host():
    # Their bodies would not be read.
    (host,) = (line for line in post("/", "", b"").decode().split("\r\n") if line.startswith("Host: "))
    assert host.removeprefix("Host: ") in LOOPBACK

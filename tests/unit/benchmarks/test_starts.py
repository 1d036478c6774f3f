import shlex
import sys

import pytest

from benchmarks import starts

# What there is of an endpoint here, and the status that it ends with at SIGTERM.
ENDPOINT = """
import http.server, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v2/health/ready" else 404)
        self.end_headers()
    def log_message(self, *_):
        pass
signal.signal(signal.SIGTERM, lambda *_: sys.exit({status}))
http.server.HTTPServer(("127.0.0.1", {port}), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(starts, "PAUSE", 0.0)


def command(code):
    return f"{sys.executable} -c {shlex.quote(code)}"


def test_each_command_is_started_in_turn(capsys):
    one, other = (command(ENDPOINT.replace("{status}", f"{zero}")) for zero in ("0", "1 - 1"))
    assert starts.main([one, other, "--rounds", "3"]) == 0
    said = capsys.readouterr()
    assert [line.split()[1:4] for line in said.err.splitlines() if line.startswith("round")] == [
        [str(turn), "of", "3"] for turn in (1, 1, 2, 2, 3, 3)
    ]
    assert [line.split(" ")[0] for line in said.out.splitlines() if " s [" in line] == ["first", "first"]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('no models')", "it ended with status 1\n    no models\n"),
        (ENDPOINT.replace("{status}", "3"), "it ended with status 3 at SIGTERM"),
    ],
)
def test_what_does_not_come_up_or_go_is_told(capsys, code, why):
    assert starts.main([command(code), "--rounds", "1"]) == 1
    assert why in capsys.readouterr().err

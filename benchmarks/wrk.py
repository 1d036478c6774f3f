"""Load from `wrk`, which takes little of the processor itself."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.controller import FailedError

_SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "%s"
local bodies, at, ready = {%s}, 0, {}
init = function() for i, body in ipairs(bodies) do ready[i] = wrk.format(nil, nil, nil, body) end end
request = function() at = at %% #ready + 1; return ready[at] end
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('\\n{"requests": %%d, "seconds": %%f, "failed": %%d, "p50": %%f, "p95": %%f, "p99": %%f}\\n',
    summary.requests, summary.duration / 1e6, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, latency:percentile(99) / 1e3))
end
"""


@dataclass(frozen=True)
class Load:
    """What came of some seconds of load; latencies in milliseconds."""

    per_second: float
    failed: int
    p50: float
    p95: float
    p99: float


def is_here() -> bool:
    """Whether there is a `wrk`."""
    return shutil.which("wrk") is not None


def write_script(path: Path, kind: str, bodies: Sequence[bytes]) -> None:
    """Writes the Lua script of a load.

    Args:
        path: where to.
        kind: content type.
        bodies: of the requests, in turn.
    """
    texts = ('"' + "".join(f"\\{byte:03d}" for byte in body) + '"' for body in bodies)
    path.write_text(_SCRIPT % (kind, ", ".join(texts)))


def load(url: str, script: Path, connections: int, seconds: float) -> Load:
    """Asks as fast as it is answered.

    Args:
        url: where to.
        script: from `write_script`.
        connections: each has one request under way, always.
        seconds: how long; whole ones.

    Raises:
        FailedError: it did not work.
    """
    words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--timeout", "30s", "-s", str(script), url]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(f"wrk: {(done.stderr or done.stdout).strip()[:300]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return Load(found["requests"] / found["seconds"], found["failed"], found["p50"], found["p95"], found["p99"])

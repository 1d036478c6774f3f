"""`python -m benchmarks.starts`: seconds from the command to the first ready answer of an endpoint.

    python -m benchmarks.starts "highway serve models --port {port}" \
        "docker run --rm --network host -v $PWD/models:/models:ro highway-endpoint --port {port} --key none"

Each command is started in turn as often as asked for, ended by SIGTERM, and waited for.
"""

import argparse
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from typing import IO

PATIENCE, PAUSE = 60.0, 1.0


def main(words: list[str] | None = None) -> int:
    """Measures, and prints a line for each start and each command.

    Args:
        words: of the command line; None for those of this process.

    Returns:
        The exit status: 1 if a command does not come up, or does not end cleanly.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starts", description=__doc__)
    parser.add_argument("commands", nargs="+", metavar="COMMAND", help="what starts an endpoint; {port} is put in")
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args(words)
    taken: dict[str, list[float]] = {command: [] for command in asked.commands}
    for turn in range(asked.rounds):
        for command in asked.commands[:: -1 if turn % 2 else 1]:
            time.sleep(PAUSE)
            with tempfile.TemporaryFile() as log:
                try:
                    taken[command].append(_start(command, log))
                except RuntimeError as error:
                    log.seek(0)
                    said = log.read().decode(errors="replace").strip().splitlines()[-3:]
                    sys.stderr.write(f"{command}: {error}\n" + "".join(f"    {line}\n" for line in said))
                    return 1
            sys.stderr.write(f"round {turn + 1} of {asked.rounds}  {taken[command][-1]:.2f} s  {command}\n")
    for command, seconds in taken.items():
        first, *later = seconds
        rest = f", then {statistics.median(later):.2f} s [{min(later):.2f} to {max(later):.2f}]" if later else ""
        sys.stdout.write(f"first {first:.2f} s{rest}  {command}\n")
    return 0


def _start(command: str, log: IO[bytes]) -> float:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    start = time.monotonic()
    process = subprocess.Popen(shlex.split(command.replace("{port}", str(port))), stdout=log, stderr=log)
    try:
        while not _ready(port):
            if process.poll() is not None:
                raise RuntimeError(f"it ended with status {process.returncode}")
            if time.monotonic() - start > PATIENCE:
                raise RuntimeError(f"it does not answer within {PATIENCE:g} s")
            time.sleep(0.01)
        seconds = time.monotonic() - start
        process.send_signal(signal.SIGTERM)
        if (status := process.wait(PATIENCE)) != 0:
            raise RuntimeError(f"it ended with status {status} at SIGTERM")
    finally:
        process.kill()
    return seconds


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


if __name__ == "__main__":
    sys.exit(main())

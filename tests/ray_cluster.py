"""A Ray cluster of several nodes on this machine, in a network of its own where the system allows that.

The nodes are started by a process of their own, because Ray starts nodes in the main thread only, and `ray stop` would
end every Ray process of the machine. It runs as `python -m tests.ray_cluster`, and takes commands from a pipe.
"""

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
NAMESPACE = ("unshare", "--map-root-user", "--net")
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}
HEAD = {**NODE, "num_cpus": 0, "include_dashboard": False}
# A node that dies is noticed sooner than after 15 s.
SOON = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "4"}
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


class LocalCluster:
    """A head without cores, and nodes with one core each.

    Args:
        nodes: names of the nodes.
        settings: Ray's own settings.

    Example:
        with LocalCluster(["a", "b"]) as cluster:
            process = cluster.start([sys.executable, "-m", "pipelines", "predict", ..., "--cluster", cluster.address])
            cluster.kill("a")
    """

    def __init__(self, nodes: Sequence[str], settings: Mapping[str, str] = SOON) -> None:
        # Paths of Unix sockets are short.
        self.folder = Path(tempfile.mkdtemp(prefix="ray-"))
        (self.folder / "token").write_text("3f1c" * 12)
        self.environment = {
            **os.environ,
            **settings,
            "PYTHONPATH": str(ROOT),
            "RAY_TMPDIR": str(self.folder),
            # Its tasks lock cores that those of another cluster may use too.
            "TMPDIR": str(self.folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.folder / "token"),
            # Tests write them, if nodes need a store.
            "AWS_CONFIG_FILE": str(self.folder / "aws-config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.folder / "aws-credentials"),
        }
        self.isolated = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
        command = [*(NAMESPACE if self.isolated else ()), sys.executable, "-m", "tests.ray_cluster"]
        with (self.folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self.address: str = self._ask("head", HEAD)
        for name in nodes:
            self.add(name)

    def __enter__(self) -> "LocalCluster":
        return self

    def __exit__(self, *_: object) -> None:
        # Its standard input ends, and with it all nodes.
        with self._process:
            pass
        shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, name: str, **options: Any) -> None:
        """Starts a node; options are those of Ray's `RayParams`."""
        self._ask("add", name, {**NODE, **options})

    def kill(self, name: str) -> None:
        """Kills all processes of a node with SIGKILL."""
        self._ask("kill", name)

    def tasks(self) -> list[int]:
        """Returns the identifiers of the processes that run a task."""
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            # Any of them may have ended.
            with suppress(psutil.Error):
                if process.cmdline()[:1] == ["ray::start"]:
                    found.append(process.pid)
        return found

    def tasks_on(self, name: str) -> list[int]:
        """Returns the identifiers of the processes that run a task on a node."""
        raylet = psutil.Process(self._ask("raylet", name))
        children = {process.pid for process in raylet.children(recursive=True)}
        return [task for task in self.tasks() if task in children]

    def command(self, words: Sequence[str]) -> list[str]:
        """Returns a command line in the cluster's network."""
        target = str(self._process.pid)
        enter = ("nsenter", "--target", target, "--user", "--net", "--preserve-credentials") if self.isolated else ()
        return [*enter, *words]

    def start(
        self, words: Sequence[str], environment: Mapping[str, str] | None = None, **options: Any
    ) -> "subprocess.Popen[str]":
        """Starts a program in the cluster's network, in the root of the repository.

        Args:
            words: the program and its arguments.
            environment: variables besides those of the cluster.
            options: of `subprocess.Popen`.
        """
        variables = {**self.environment, **(environment or {})}
        return subprocess.Popen(
            self.command(words), env=variables, text=True, **{"cwd": ROOT, "stderr": subprocess.STDOUT, **options}
        )

    def run(
        self, words: Sequence[str], environment: Mapping[str, str] | None = None, **options: Any
    ) -> tuple[int, str]:
        """Runs a program to its end, as `start` does; returns its status, and its output with its errors."""
        process = self.start(words, environment, stdout=subprocess.PIPE, **options)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def _ask(self, *words: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, (self.folder / "log").read_text()[-3000:]
        return json.loads(answer)


def serve() -> None:
    """Starts and kills nodes as the lines of the standard input say, and ends all of them at its end."""
    _raise_loopback()
    # Programs of Ray write to the standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from ray.cluster_utils import Cluster

    cluster, nodes = Cluster(), {}
    for line in sys.stdin:
        verb, *words = json.loads(line)
        answer = None
        if verb == "head":
            cluster.add_node(**words[0])
            answer = cluster.address
        elif verb == "add":
            nodes[words[0]] = cluster.add_node(**words[1])
        elif verb == "raylet":
            answer = nodes[words[0]].all_processes["raylet"][0].process.pid
        else:
            cluster.remove_node(nodes.pop(words[0]), allow_graceful=False)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    cluster.shutdown()


def _raise_loopback() -> None:
    """Turns the loopback interface on, which a new network has turned off."""
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        if not flags & IFF_UP:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


if __name__ == "__main__":
    serve()

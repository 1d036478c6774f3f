"""An S3 server that the nodes of the cluster share."""

import socket
import subprocess
import sys

import pytest

# Evaluates the expressions of its input, each on a line, and prints their values.
EVALUATE = """
import sys, s3fs
store = s3fs.S3FileSystem(use_listings_cache=False)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@pytest.fixture(scope="session")
def store(cluster):
    """A function that evaluates an expression with `store`, the file system of an S3 server in the cluster's network.

    Of the same scope as the cluster: processes of nodes keep their connections.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Nodes find it by the files of AWS.
    (cluster.folder / "aws-config").write_text(
        f"[default]\nregion = us-east-1\nendpoint_url = http://127.0.0.1:{port}\n"
    )
    (cluster.folder / "aws-credentials").write_text(
        "[default]\naws_access_key_id = testing\naws_secret_access_key = testing\n"
    )
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = cluster.start(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shell = cluster.start([sys.executable, "-c", EVALUATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def value(expression):
        shell.stdin.write(f"{expression}\n")
        shell.stdin.flush()
        return shell.stdout.readline().strip()

    yield value
    for process in (shell, server):
        process.kill()
        process.communicate()

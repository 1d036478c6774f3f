"""A local S3 server (moto) that can be stopped and started again, and its buckets.

The server runs in threads of the test's process; its objects are in memory and survive a stop. Programs find it by the
variables in `S3Server.environment`, which are AWS's own. Tests use the fixtures `s3_server` and `bucket`.
"""

import logging
import os
import threading
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
# Nothing of the user's own: neither files nor a role of the machine.
ACCESS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    # A server that is stopped is noticed at once.
    "AWS_MAX_ATTEMPTS": "1",
    "NO_PROXY": HOST,
}


class S3Server:
    """A server on a free port of this machine, started when it is made.

    Example:
        server = S3Server()
        subprocess.run([...], env={**os.environ, **server.environment})
        server.stop()
        server.start()
    """

    def __init__(self) -> None:
        self._port, self._server, self._thread = 0, None, None
        self.start()

    @property
    def environment(self) -> dict[str, str]:
        """Variables for programs that use the server."""
        return {**ACCESS, "AWS_ENDPOINT_URL": f"http://{HOST}:{self._port}"}

    def start(self) -> None:
        """Starts the server; the port and the objects are those of the previous start."""
        # Imports botocore, which few tests need.
        from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        app = DomainDispatcherApplication(create_backend_app)
        # Not moto's ThreadedMotoServer, which keeps the port open after a stop, so that clients wait for an answer.
        server = make_server(HOST, self._port, app, threaded=True, request_handler=MotoRequestHandler)
        self._server, self._port = server, server.port
        self._thread = threading.Thread(target=server.serve_forever, name="moto", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the server: connections are refused until it is started again. May be called twice."""
        if self._server is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = None


class Bucket:
    """A bucket, as the program at the other end writes it.

    Args:
        server: the server, running.
        name: name of the new bucket.

    Example:
        bucket.upload(Path("models/demo/1"), "models/demo/1")
        bucket.url  # s3://test-1
    """

    def __init__(self, server: S3Server, name: str) -> None:
        import boto3

        self.server, self.name, self.url = server, name, f"s3://{name}"
        variables = server.environment
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=variables["AWS_ENDPOINT_URL"],
            region_name=variables["AWS_DEFAULT_REGION"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        )
        self._client.create_bucket(Bucket=name)

    def put(self, key: str, content: bytes) -> None:
        """Writes an object."""
        self._client.put_object(Bucket=self.name, Key=key, Body=content)

    def get(self, key: str) -> bytes:
        """Reads an object."""
        return self._client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def keys(self, prefix: str = "") -> list[str]:
        """Returns the names of the first thousand objects, sorted."""
        found = self._client.list_objects_v2(Bucket=self.name, Prefix=prefix)
        return [one["Key"] for one in found.get("Contents", [])]

    def delete(self, prefix: str = "") -> None:
        """Removes all objects with a prefix."""
        for key in self.keys(prefix):
            self._client.delete_object(Bucket=self.name, Key=key)

    def upload(self, folder: Path, prefix: str, last: str = "manifest.json") -> None:
        """Writes the files of a folder as objects, the one named `last` after all others."""
        files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.name == last)
        for path in files:
            self.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def close(self) -> None:
        """Removes the bucket."""
        self.delete()
        self._client.delete_bucket(Bucket=self.name)
        self._client.close()

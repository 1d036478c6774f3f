"""A local server with the interface of Google Cloud Storage (gcp-storage-emulator), and its buckets.

The server runs in a thread of the test's process, with its objects in memory. Programs find it by the variables in
`GsServer.environment`. Tests use the fixture `bucket` with the parameter `gs`.
"""

import os
import threading
from functools import partial
from http import HTTPStatus
from http.server import HTTPServer
from typing import Any

from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

from tests.s3_server import Bucket

HOST = "127.0.0.1"
NOWHERE = f"{HOST}:1"
ACCESS = {
    # Nothing of the user's own, nor of a machine of Google's.
    "CLOUDSDK_CONFIG": os.devnull,
    "GCE_METADATA_HOST": NOWHERE,
    "GCE_METADATA_IP": NOWHERE,
    # Otherwise, gcsfs asks Google what kind of bucket it is, for several seconds.
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    "NO_PROXY": HOST,
}


class GsServer:
    """A server on a free port of this machine, started when it is made.

    Example:
        server = GsServer()
        subprocess.run([...], env={**os.environ, **server.environment})
        server.stop()
    """

    def __init__(self) -> None:
        self._server = HTTPServer((HOST, 0), partial(_Handler, _Objects(use_memory_fs=True)))
        self._thread = threading.Thread(target=self._server.serve_forever, name="gcs", daemon=True)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """Variables for programs that use the server."""
        return {**ACCESS, "STORAGE_EMULATOR_HOST": f"http://{HOST}:{self._server.server_port}"}

    def stop(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class GsBucket(Bucket):
    """A bucket, as the program at the other end writes it.

    Args:
        server: the server.
        name: name of the new bucket.
    """

    def __init__(self, server: GsServer, name: str) -> None:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud.storage import Client

        self.server, self.name, self.url = server, name, f"gs://{name}"
        address = {"api_endpoint": server.environment["STORAGE_EMULATOR_HOST"]}
        self._client: Any = Client("tests", AnonymousCredentials(), client_options=address)
        self._bucket: Any = self._client.create_bucket(name)

    def put(self, key: str, content: bytes) -> None:
        self._bucket.blob(key).upload_from_string(content)

    def get(self, key: str) -> bytes:
        return self._bucket.blob(key).download_as_bytes()

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(blob.name for blob in self._client.list_blobs(self.name, prefix=prefix))

    def delete(self, prefix: str = "") -> None:
        for key in self.keys(prefix):
            self._bucket.blob(key).delete()

    def close(self) -> None:
        self.delete()
        self._bucket.delete()
        self._client.close()


class _ExistsError(Exception):
    """There is an object where a request wants to create one."""


class _Objects(Storage):
    """The objects, with the condition that there must be none, which the emulator ignores."""

    must_be_new = False

    def create_file(self, bucket_name: str, file_name: str, *rest: Any, **named: Any) -> None:
        if self.must_be_new and file_name in self.objects.get(bucket_name, {}):
            raise _ExistsError
        super().create_file(bucket_name, file_name, *rest, **named)


class _Handler(RequestHandler):
    def do_POST(self) -> None:  # noqa: N802
        self.storage.must_be_new = "ifGenerationMatch=0" in self.path
        try:
            super().do_POST()
        except _ExistsError:
            self.send_error(HTTPStatus.PRECONDITION_FAILED)
        finally:
            self.storage.must_be_new = False

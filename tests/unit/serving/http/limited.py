"""A server with limits on connections, and what its clients read."""

import asyncio
import contextlib
import socket
import threading

import uvicorn

from serving.engine.settings import Limits
from serving.http.connections import protocol
from tests.endpoint import eventually

HEAD = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
# Answered before its body has been sent.
REFUSED = b"POST /refused HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (2**40)
LARGE = 2**25


class Server:
    """Runs an app in a thread that answers with the length of the body, or with a long answer at `/large`.

    At `/refused`, it answers before it has read the body. With `alone`, it accepts all connections that wait.
    """

    def __init__(self, *, alone=False, **limits):
        self.asked, self.ended = [], []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setblocking(False)
        http = protocol(Limits(**{"idle": 0.3, **limits}), self.listening if alone else None)
        config = uvicorn.Config(
            self.app, http=http, timeout_graceful_shutdown=20,
            lifespan="off", ws="none", interface="asgi3", log_config=None,
        )  # fmt: skip
        self.address = self.listening.getsockname()
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.listening],))

    async def app(self, scope, receive, send):
        self.asked.append((scope["raw_path"], scope["query_string"]))
        body, more = b"", True
        while more and scope["path"] != "/refused":
            message = await receive()
            if message["type"] == "http.disconnect":
                self.ended.append("disconnect")
                return
            body, more = body + message["body"], message["more_body"]
        if scope["path"] == "/slow":
            await asyncio.sleep(1.0)
        answer = bytes(LARGE) if scope["path"] == "/large" else b"%d" % len(body)
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})
        self.ended.append("answer")

    def connect(self, *parts):
        made = socket.create_connection(self.address, timeout=20)
        for part in parts:
            made.sendall(part)
        return made

    def opened(self):
        """Returns the connections that are open."""
        return list(self.server.server_state.connections)

    def __enter__(self):
        self.thread.start()
        eventually(lambda: self.server.started)
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join()


def said(connection):
    """Returns all data received until the other side closes the connection."""
    # Bytes would be copied for each part, so that reading `LARGE` bytes takes seconds and may exceed the time limit.
    found = bytearray()
    with connection, contextlib.suppress(ConnectionResetError):
        while part := connection.recv(2**16):
            found += part
    return bytes(found)


def status(answer):
    return answer[9:12]

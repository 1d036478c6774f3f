import asyncio

import uvicorn
from uvicorn.server import ServerState

from serving.engine.settings import Limits
from serving.http.connections import protocol

HEAD = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Recorded(asyncio.Transport):
    """A transport that records what is written, and how."""

    def __init__(self):
        self.calls, self.closed = [], False

    def get_extra_info(self, name, default=None):
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def write(self, data):
        self.calls.append(data)

    def writelines(self, parts):
        self.calls.append(b"|".join(parts))

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def resume_reading(self):
        pass


def written(app, request):
    """Returns what is written for a request, in as many parts as system calls."""

    async def run():
        transport = Recorded()
        config = uvicorn.Config(app, http=protocol(Limits()), lifespan="off", log_config=None)
        config.load()
        one = config.http_protocol_class(config, ServerState(), {})
        one.connection_made(transport)
        one.data_received(request)
        await asyncio.gather(*one.tasks, return_exceptions=True)
        one.connection_lost(None)
        return transport.calls

    return asyncio.run(run())


def answering(*bodies, size):
    async def app(scope, receive, send):
        await receive()
        headers = [(b"content-length", b"%d" % size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, body in enumerate(bodies):
            await send({"type": "http.response.body", "body": body, "more_body": number + 1 < len(bodies)})

    return app


def test_a_head_is_sent_together_with_the_start_of_its_body():
    (whole,) = written(answering(b"seven", size=5), GET)
    head, body = whole.split(b"\r\n\r\n|")
    assert (head[:15], body) == (b"HTTP/1.1 200 OK", b"seven")
    first, second = written(answering(b"HTTP/1.1 sev", b"en", size=14), GET)
    assert first.endswith(b"\r\n\r\n|HTTP/1.1 sev")
    assert second == b"en"


def test_a_head_without_a_body_is_sent_too():
    (head,) = written(answering(b"", size=5), GET.replace(b"GET", b"HEAD"))
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert head.endswith(b"content-length: 5\r\n\r\n")
    # An app that fails after the head: uvicorn closes the connection.
    (head,) = written(answering(size=5), GET)
    assert head.startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_asks_to_continue_is_answered_at_once():
    go_on, answer = written(answering(b"seven", size=5), HEAD[:-2] + b"Expect: 100-continue\r\n\r\n0123456789")
    assert go_on == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.endswith(b"seven")

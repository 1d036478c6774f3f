"""Records what a published client sends to an endpoint, and what it gets, in a JSON file; and replays it.

The clients do not fit into the environment of the tests. To record the exchanges of one anew:

    python -m venv /tmp/kserve && /tmp/kserve/bin/pip install kserve
    HIGHWAY_RECORD=/tmp/kserve/bin/python python -m pytest tests/unit/serving/rpc/test_recorded_clients.py -k kserve

The client's own assertions must hold, and its version becomes part of the file.
"""

import base64
import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc

FOLDER = Path(__file__).with_name("recorded")
# Headers of requests that belong to the connection, and those of answers that clients read.
_OF_CONNECTIONS = ("host", "connection", "content-length", "user-agent")
_OF_ANSWERS = ("content-type", "inference-header-content-length")
_VERSION = "import importlib.metadata as found; print(found.version('{}'))"


def encoded(content):
    return base64.b64encode(content).decode()


def replay(served, exchange):
    """Sends a recorded request, and returns the exchange with the answer that comes now."""
    if "rpc" in exchange:
        return _replay_rpc(served, exchange)
    content = base64.b64decode(exchange["body"])
    answer = served.http.request(exchange["method"], exchange["path"], content=content, headers=exchange["headers"])
    found = {name: answer.headers[name] for name in _OF_ANSWERS if name in answer.headers}
    return {**exchange, "status": answer.status_code, "answer_headers": found, "answer": encoded(answer.content)}


def _replay_rpc(served, exchange):
    try:
        answer = served.channel.unary_unary(exchange["rpc"])(base64.b64decode(exchange["body"]), timeout=30)
    except grpc.RpcError as error:
        return {**exchange, "status": error.code().name, "answer": encoded(error.details().encode())}
    return {**exchange, "status": "OK", "answer": encoded(answer)}


def record(served, name, python, folder):
    """Runs the calls of a client with the images in a folder, and writes its exchanges."""
    exchanges = []

    class Http(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {key: value for key, value in self.headers.items() if key.lower() not in _OF_CONNECTIONS}
            asked = {"method": self.command, "path": self.path, "headers": headers, "body": encoded(body)}
            exchanges.append(replay(served, asked))
            content = base64.b64decode(exchanges[-1]["answer"])
            self.send_response(exchanges[-1]["status"])
            for pair in {**exchanges[-1]["answer_headers"], "content-length": str(len(content))}.items():
                self.send_header(*pair)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    class Rpc(grpc.GenericRpcHandler):
        def service(self, call):
            def forward(body, context):
                exchanges.append(replay(served, {"rpc": call.method, "body": encoded(body)}))
                answer = base64.b64decode(exchanges[-1]["answer"])
                if exchanges[-1]["status"] != "OK":
                    context.abort(grpc.StatusCode[exchanges[-1]["status"]], answer.decode())
                return answer

            return grpc.unary_unary_rpc_method_handler(forward)

    web = ThreadingHTTPServer(("127.0.0.1", 0), Http)
    threading.Thread(target=web.serve_forever).start()
    other = grpc.server(ThreadPoolExecutor(1), [Rpc()])
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    addresses = (f"http://127.0.0.1:{web.server_port}", f"127.0.0.1:{port}", str(folder))
    try:
        subprocess.run([python, FOLDER / f"{name}_calls.py", *addresses], check=True)
    finally:
        web.shutdown()
        web.server_close()
        other.stop(None).wait()
    version = subprocess.check_output([python, "-c", _VERSION.format(name)], text=True).strip()
    content = {"client": f"{name} {version}", "exchanges": exchanges}
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")

"""An endpoint with both ports in this process, and the published stubs."""

import threading
from contextlib import contextmanager
from functools import partial

import grpc
from grpc_health.v1 import health_pb2_grpc
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from serving.endpoint.serve import reserve
from serving.engine.settings import Limits
from serving.http.app import make_app
from serving.rpc.server import serve
from tests.endpoint import IMAGES, LoadedClient


class Served:
    """An endpoint with both ports, and the published stubs."""

    def __init__(self, settings, limits=None):
        self.reserved = reserve("127.0.0.1", 0)
        address = f"127.0.0.1:{self.reserved.getsockname()[1]}"
        self.http = LoadedClient(
            make_app(settings, partial(serve, address=address, limits=limits or Limits(), grace=5.0))
        )
        self.address, self.settings = self.reserved.getsockname(), settings
        self.channel = grpc.insecure_channel(address)
        self.inference = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def __enter__(self):
        self.http.__enter__()
        return self

    def __exit__(self, *error):
        self.channel.close()
        self.http.__exit__(*error)
        self.reserved.close()


def infer_request(images=IMAGES, datatype="UINT8", **fields):
    tensor = {"name": "image", "datatype": datatype, "shape": images.shape}
    return service_pb2.ModelInferRequest(
        **{"model_name": "tiny", "inputs": [tensor], "raw_input_contents": [images.tobytes()], **fields}
    )


@contextmanager
def incomplete(served, method="inference.GRPCInferenceService/ModelInfer"):
    """Yields a call whose message does not come before the end of the block."""
    ended = threading.Event()

    def message():
        ended.wait()
        yield b""

    yield served.channel.stream_unary(f"/{method}").future(message())
    ended.set()

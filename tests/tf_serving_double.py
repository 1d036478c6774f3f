"""A server that speaks TF Serving's protocols with the real messages and stubs, over real SavedModels.

    python tests/tf_serving_double.py --model_config_file=models/models.config --models=models

It replaces the real program where that is not available, and follows its documentation on names, versions, labels,
states and errors. Its options have the names of the real ones, except `--models`: the folder that the configuration
calls /models. Answers list their values one by one (`float_val`), like those of the real program. Once it accepts
requests, it prints its two ports, gRPC and REST.
"""

import argparse
import base64
import json
import os
import signal
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format, text_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.config import model_server_config_pb2

State = get_model_status_pb2.ModelVersionStatus.State
# HTTP status of each gRPC status.
HTTP = {grpc.StatusCode.NOT_FOUND: 404, grpc.StatusCode.INVALID_ARGUMENT: 400}


class RefusedError(Exception):
    """An error to be sent instead of a prediction."""

    def __init__(self, code, details):
        super().__init__(details)
        self.code, self.details = code, details


class Models:
    """The models that a configuration file asks for, loaded and kept up to date."""

    def __init__(self, config, root):
        self.config, self.root = config, root
        self.labels, self.states, self.loaded = {}, {}, {}

    def refresh(self):
        asked = model_server_config_pb2.ModelServerConfig()
        text_format.Parse(self.config.read_text(), asked)
        wanted = {}
        for one in asked.model_config_list.config:
            assert one.model_platform == "tensorflow"
            folder = self.root / Path(one.base_path).relative_to("/models")
            wanted |= {(one.name, version): folder / str(version) for version in versions(folder, one)}
            self.labels[one.name] = dict(one.version_labels)
        # New versions are loaded before old ones are dropped, so that one is always available.
        for key in wanted.keys() - self.loaded.keys():
            self.states[key] = State.LOADING
            try:
                self.loaded[key] = tf.saved_model.load(str(wanted[key]))
            except (OSError, ValueError):
                self.states[key] = State.END
            else:
                self.states[key] = State.AVAILABLE
        for key in self.loaded.keys() - wanted.keys():
            self.states[key] = State.END
            del self.loaded[key]

    def find(self, spec):
        """Returns the version and the SavedModel that a ModelSpec refers to."""
        known = sorted(version for name, version in list(self.loaded) if name == spec.name)
        choice = spec.WhichOneof("version_choice")
        if choice == "version_label":
            version = self.labels.get(spec.name, {}).get(spec.version_label)
            if version is None:
                raise RefusedError(
                    grpc.StatusCode.INVALID_ARGUMENT, f"Unrecognized servable version label: {spec.version_label}"
                )
        else:
            version = spec.version.value if choice == "version" else max(known, default=None)
        if version not in known:
            asked = f"Latest({spec.name})" if version is None else f"Specific({spec.name}, {version})"
            raise RefusedError(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {asked}")
        return version, self.loaded[spec.name, version]

    def predict(self, request):
        version, model = self.find(request.model_spec)
        name = request.model_spec.signature_name or "serving_default"
        if name not in model.signatures:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f'Serving signature key "{name}" not found.')
        signature = model.signatures[name]
        taken = signature.structured_input_signature[1]
        if request.inputs.keys() != taken.keys():
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT, f"input size does not match signature: {sorted(request.inputs)}"
            )
        given = {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
        for key, spec in taken.items():
            if given[key].dtype != spec.dtype or not spec.shape.is_compatible_with(given[key].shape):
                raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"{key}: {given[key].shape}, expected {spec}")
        try:
            outputs = signature(**given)
        except tf.errors.InvalidArgumentError as error:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        wanted = list(request.output_filter) or outputs.keys()
        if unknown := set(wanted) - outputs.keys():
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT, f"output tensor alias not found in signature: {sorted(unknown)}"
            )
        answer = predict_pb2.PredictResponse()
        answer.model_spec.name, answer.model_spec.signature_name = request.model_spec.name, name
        answer.model_spec.version.value = version
        for key in wanted:
            answer.outputs[key].CopyFrom(listed(outputs[key].numpy()))
        return answer

    def status(self, spec):
        found = get_model_status_pb2.GetModelStatusResponse()
        choice = spec.WhichOneof("version_choice")
        only = self.find(spec)[0] if choice == "version_label" else spec.version.value if choice else None
        for (name, version), state in sorted(dict(self.states).items(), reverse=True):
            if name == spec.name and only in (None, version):
                one = found.model_version_status.add(version=version, state=state)
                one.status.error_code = 0
        if not found.model_version_status:
            raise RefusedError(grpc.StatusCode.NOT_FOUND, f"Could not find any versions of model {spec.name}")
        return found

    def metadata(self, spec):
        version, model = self.find(spec)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in model.signatures.items():
            one = signatures.signature_def[name]
            one.method_name = "tensorflow/serving/predict"
            inputs, outputs = signature.structured_input_signature[1], signature.structured_outputs
            for tensors, specs in ((one.inputs, inputs), (one.outputs, outputs)):
                for key, tensor in specs.items():
                    tensors[key].dtype = tensor.dtype.as_datatype_enum
                    tensors[key].tensor_shape.CopyFrom(tensor.shape.as_proto())
        found = get_model_metadata_pb2.GetModelMetadataResponse()
        found.model_spec.name = spec.name
        found.model_spec.version.value = version
        found.metadata["signature_def"].Pack(signatures)
        return found


def versions(folder, config):
    """Returns the versions in a folder that a policy asks for."""
    on_disk = sorted(int(one.name) for one in folder.iterdir() if one.name.isdecimal()) if folder.is_dir() else []
    policy = config.model_version_policy
    kind = policy.WhichOneof("policy_choice") or "latest"
    if kind == "specific":
        return [version for version in policy.specific.versions if version in on_disk]
    return on_disk if kind == "all" else on_disk[-(policy.latest.num_versions or 1) :]


def listed(array):
    """Converts an array to a TensorProto that lists its values one by one, as TF Serving sends them."""
    field = {np.dtype("float32"): "float_val", np.dtype("int64"): "int64_val", np.dtype(object): "string_val"}
    proto = tf.make_tensor_proto([], tf.as_dtype(array.dtype), array.shape if array.size == 0 else (0,))
    proto.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
    getattr(proto, field[array.dtype]).extend(array.ravel().tolist())
    return proto


def answered(function):
    """Wraps a function as a gRPC method that answers or refuses."""

    def method(request, context):
        try:
            return function(request)
        except RefusedError as refusal:
            context.abort(refusal.code, refusal.details)

    return method


def grpc_server(models, address):
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    prediction = prediction_service_pb2_grpc.PredictionServiceServicer()
    prediction.Predict = answered(models.predict)
    prediction.GetModelMetadata = answered(lambda request: models.metadata(request.model_spec))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(prediction, server)
    service = model_service_pb2_grpc.ModelServiceServicer()
    service.GetModelStatus = answered(lambda request: models.status(request.model_spec))
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(service, server)
    port = server.add_insecure_port(address)
    server.start()
    return server, port


def rest_server(models, address):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            path = self.path.split("/")
            metadata = path[-1] == "metadata"
            spec = specified(path[:-1] if metadata else path)
            if metadata:
                self.answer(lambda: as_json(models.metadata(spec)))
            else:
                self.answer(lambda: as_json(models.status(spec)))

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            path, _, verb = self.path.rpartition(":")
            assert verb == "predict"
            self.answer(lambda: predicted(models, specified(path.split("/")), json.loads(body)))

        def answer(self, function):
            try:
                status, content = 200, function()
            except RefusedError as refusal:
                status, content = HTTP[refusal.code], {"error": refusal.details}
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(address, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def specified(path):
    """Returns the ModelSpec of /v1/models/NAME[/versions/V|/labels/L]."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = path[3]
    if path[4:5] == ["versions"]:
        request.model_spec.version.value = int(path[5])
    if path[4:5] == ["labels"]:
        request.model_spec.version_label = path[5]
    return request.model_spec


def as_json(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def predicted(models, spec, body):
    """Returns the answer to a body of :predict, in rows or columns like the body; a lone output has no name there."""
    request = predict_pb2.PredictRequest(model_spec=spec)
    request.model_spec.signature_name = body.get("signature_name", "")
    _, model = models.find(spec)
    taken = model.signatures[body.get("signature_name", "serving_default")].structured_input_signature[1]
    ((name, tensor),) = taken.items()
    rows = "instances" in body
    values = body["instances"] if rows else body["inputs"]
    if rows:
        values = [value[name] if isinstance(value, dict) and name in value else value for value in values]
    elif isinstance(values, dict):
        values = values[name]
    values = [base64.b64decode(value["b64"]) if isinstance(value, dict) else value for value in values]
    request.inputs[name].CopyFrom(tf.make_tensor_proto(values, tensor.dtype))
    outputs = {key: tf.make_ndarray(value) for key, value in models.predict(request).outputs.items()}
    lists = {
        key: [text.decode() for text in value] if value.dtype == object else value.tolist()
        for key, value in outputs.items()
    }
    if len(lists) == 1:
        (lone,) = lists.values()
        return {"predictions" if rows else "outputs": lone}
    if not rows:
        return {"outputs": lists}
    return {"predictions": [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rest_api_port", type=int, default=0)
    parser.add_argument("--model_config_file", type=Path, required=True)
    parser.add_argument("--model_config_file_poll_wait_seconds", type=float, default=0.1)
    parser.add_argument("--models", type=Path, required=True)
    given = parser.parse_args()
    models = Models(given.model_config_file, given.models)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    models.refresh()
    server, port = grpc_server(models, f"127.0.0.1:{given.port}")
    rest = rest_server(models, ("127.0.0.1", given.rest_api_port))
    sys.stdout.write(f"{port} {rest.server_address[1]}\n")
    sys.stdout.flush()
    while not stop.wait(given.model_config_file_poll_wait_seconds):
        models.refresh()
    server.stop(None)
    os._exit(0)


if __name__ == "__main__":
    main()

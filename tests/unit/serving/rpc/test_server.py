"""The gRPC server next to the app over the version made by hand, called with the published stubs."""

import asyncio
import shutil
import socket
from types import SimpleNamespace
from unittest.mock import Mock

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2
from tritonclient.grpc import service_pb2

from serving.endpoint.serve import reserve
from serving.engine.about import About
from serving.engine.batching import Batcher
from serving.engine.processes import SMALL
from serving.engine.settings import Limits, Settings
from serving.messages import tf_serving as messages
from serving.protocols import open_inference
from serving.rpc import calls
from serving.rpc.calls import CallLimits, client_of
from serving.rpc.connections import ConnectionLimits
from tests.endpoint import IMAGES, eventually

from .served import Served, incomplete, infer_request

Code = grpc.StatusCode


def predict_request(images=IMAGES, **spec):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "tiny"
    for name, value in spec.items():
        if name == "version":
            request.model_spec.version.value = value
        else:
            setattr(request.model_spec, name, value)
    request.inputs["image"].ParseFromString(messages.tensor(images).SerializeToString())
    return request


@pytest.fixture
def expected(kernel):
    logits = IMAGES.reshape(3, 12) @ kernel
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def test_the_open_inference_protocol(served, expected):
    stub = served.inference
    assert stub.ServerLive(service_pb2.ServerLiveRequest()).live
    assert stub.ServerReady(service_pb2.ServerReadyRequest()).ready
    assert stub.ModelReady(service_pb2.ModelReadyRequest(name="tiny", version="1")).ready
    assert not stub.ModelReady(service_pb2.ModelReadyRequest(name="other")).ready
    assert "classification" in stub.ServerMetadata(service_pb2.ServerMetadataRequest()).extensions
    found = stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="tiny"))
    assert (found.versions, found.inputs[0].shape) == (["1"], [-1, 4, 3, 1])
    config = stub.ModelConfig(service_pb2.ModelConfigRequest(name="tiny")).config
    assert (config.max_batch_size, config.input[0].dims, config.input[1].optional) == (256, [4, 3, 1], True)
    (entry,) = stub.RepositoryIndex(service_pb2.RepositoryIndexRequest(ready=True)).models
    assert (entry.name, entry.version, entry.state) == ("tiny", "1", "READY")
    found = stub.ModelInfer(infer_request(id="seven"))
    assert (found.model_name, found.model_version, found.id) == ("tiny", "1", "seven")
    assert [(one.name, one.datatype, one.shape) for one in found.outputs] == [
        ("probabilities", "FP32", [3, 4]), ("class_id", "INT64", [3]),
    ]  # fmt: skip
    first = np.frombuffer(found.raw_output_contents[0], "<f4").reshape(3, 4)
    np.testing.assert_allclose(first, expected, atol=1e-6)
    (statistics,) = stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name="tiny")).model_stats
    assert (statistics.inference_count, statistics.inference_stats.success.count) == (3, 1)


def test_tensors_listed_value_by_value_are_answered_alike(served, expected):
    given = infer_request(np.float32(IMAGES), "FP32", raw_input_contents=[])
    given.inputs[0].contents.fp32_contents.extend(IMAGES.ravel())
    found = served.inference.ModelInfer(given)
    assert not found.raw_output_contents
    np.testing.assert_allclose(found.outputs[0].contents.fp32_contents, expected.ravel(), atol=1e-6)
    assert found.outputs[1].contents.int64_contents == expected.argmax(-1).tolist()


def test_strings_beyond_the_shape_are_not_read(served, monkeypatch):
    read = []
    monkeypatch.setattr(open_inference, "struct", SimpleNamespace(unpack_from=lambda *_: (read.append("string") or 0,)))
    given = infer_request(raw_input_contents=[bytes(1000)])
    given.inputs[0].name, given.inputs[0].datatype, given.inputs[0].shape[:] = "image_bytes", "BYTES", [1]
    said = "the data has more strings than the shape, which has 1."
    assert wrong(served.inference.ModelInfer, given) == (grpc.StatusCode.INVALID_ARGUMENT, said)
    assert len(read) == 1


def test_classification(served, expected):
    given = infer_request(IMAGES[:1])
    given.outputs.add(name="probabilities").parameters["classification"].int64_param = 2
    found = served.inference.ModelInfer(given)
    assert (found.outputs[0].datatype, found.outputs[0].shape) == ("BYTES", [1, 2])
    best = expected[0].argmax()
    label = ("zero", "one", "two", "three")[best]
    assert f"{expected[0, best]:.6f}:{best}:{label}".encode() in found.raw_output_contents[0]


def test_a_number_of_classes_may_be_of_any_type_of_number_and_nothing_else(served):
    given = infer_request(IMAGES[:1])
    parameter = given.outputs.add(name="probabilities").parameters["classification"]
    parameter.uint64_param = 2
    assert served.inference.ModelInfer(given).outputs[0].shape == [1, 2]
    parameter.string_param = "2"
    assert wrong(served.inference.ModelInfer, given)[1].endswith("must be a number of classes. Received: '2'.")


def test_an_input_is_sent_in_one_form(served):
    given = infer_request(IMAGES[:1])
    assert given.raw_input_contents
    given.inputs[0].contents.uint_contents.extend([7] * 12)
    said = "input 'image' has both contents and raw_input_contents. Send one of them."
    assert wrong(served.inference.ModelInfer, given) == (Code.INVALID_ARGUMENT, said)


def test_tf_serving(served, expected):
    for spec in ({}, {"version": 0}, {"version": 1}, {"signature_name": "serving_default"}):
        found = served.prediction.Predict(predict_request(**spec))
        assert (found.model_spec.name, found.model_spec.version.value) == ("tiny", 1)
        np.testing.assert_allclose(found.outputs["probabilities"].float_val, expected.ravel(), atol=1e-6)
        assert [dim.size for dim in found.outputs["probabilities"].tensor_shape.dim] == [3, 4]
        assert found.outputs["class_id"].int64_val == expected.argmax(-1).tolist()
    request = predict_request(np.float64(IMAGES))
    request.output_filter.append("class_id")
    assert list(served.prediction.Predict(request).outputs) == ["class_id"]
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "tiny"
    (status,) = served.models.GetModelStatus(request).model_version_status
    assert (status.version, status.State.Name(status.state)) == (1, "AVAILABLE")
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "tiny"
    found = get_model_metadata_pb2.SignatureDefMap()
    assert served.prediction.GetModelMetadata(request).metadata["signature_def"].Unpack(found)
    image = found.signature_def["serving_default"].inputs["image"]
    assert (image.dtype, [dim.size for dim in image.tensor_shape.dim]) == (4, [-1, 4, 3, 1])


def test_numbers_beyond_their_type_are_refused(served):
    request = predict_request()
    image = request.inputs["image"]
    image.ClearField("tensor_content")
    image.int_val.extend([300] * IMAGES.size)
    said = "input 'image' has values out of range for its type, DT_UINT8."
    assert wrong(served.prediction.Predict, request) == (Code.INVALID_ARGUMENT, said)


def test_types_that_are_not_converted_are_named(served):
    request = predict_request()
    for dtype, name in ((14, "DT_BFLOAT16"), (10, "DT_BOOL"), (20, "DT_RESOURCE"), (99, "99")):
        request.inputs["image"].dtype = dtype
        code, details = wrong(served.prediction.Predict, request)
        said = f"input 'image' has the type {name}, which is not converted. Expected DT_UINT8, or another type "
        assert (code, details.startswith(said), ": DT_FLOAT, DT_DOUBLE" in details) == (
            Code.INVALID_ARGUMENT,
            True,
            True,
        )


def test_a_number_that_is_too_large_is_left_out_of_statuses(served, version):
    version.with_name(str(2**63)).mkdir()
    eventually(lambda: len(served.http.get("/v1/models").json()["statuses"]["tiny"]) == 2)
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "tiny"
    assert [one.version for one in served.models.GetModelStatus(request).model_version_status] == [1]


def error(function, request, **options):
    with pytest.raises(grpc.RpcError) as raised:
        function(request, **options)
    return raised.value


def wrong(function, request, **options):
    raised = error(function, request, **options)
    return raised.code(), raised.details()


def test_errors_have_a_code_and_the_sentence_of_http(served, monkeypatch):
    infer, predict = served.inference.ModelInfer, served.prediction.Predict
    for function, request, code, said in (
        (infer, infer_request(model_name="other"), Code.NOT_FOUND, "there is no model 'other'"),
        (infer, infer_request(model_version="x"), Code.INVALID_ARGUMENT, "a version is a positive integer"),
        (infer, infer_request(IMAGES[:, :2]), Code.INVALID_ARGUMENT, "takes images of (batch, 4, 3, 1)"),
        (infer, infer_request(np.float32(IMAGES) / 2, "FP32"), Code.INVALID_ARGUMENT, "whole numbers"),
        (infer, infer_request(inputs=[]), Code.INVALID_ARGUMENT, "one input"),
        (predict, predict_request(version=7), Code.NOT_FOUND, "version 7 of model 'tiny' is not served"),
        (predict, predict_request(version=-1), Code.INVALID_ARGUMENT, "a positive integer"),
        (predict, predict_request(version_label="stable"), Code.NOT_FOUND, "no label 'stable'"),
        (predict, predict_request(signature_name="x"), Code.INVALID_ARGUMENT, "no signature 'x'"),
        (predict, predict_request(np.zeros((257, 4, 3, 1), "uint8")), Code.RESOURCE_EXHAUSTED, "limit of 256"),
        (predict, predict_request(np.array(7, "uint8")), Code.INVALID_ARGUMENT, "'image' is a single value"),
        (predict, predict_request(np.array([b"a"], object)), Code.INVALID_ARGUMENT, "takes images"),
    ):
        found, details = wrong(function, request)
        assert (found, said in details) == (code, True), details
    monkeypatch.setattr(Batcher, "predict", lambda *_: 1 / 0)
    assert wrong(infer, infer_request()) == (Code.INTERNAL, "the endpoint failed. Its log has the reason.")
    text = served.http.get("/metrics").text
    route = "/inference.GRPCInferenceService/ModelInfer"
    assert any(
        line.startswith("highway_requests_total{") and route in line and '"404"' in line for line in text.splitlines()
    )


def test_refusals_name_the_model_if_the_repository_has_it(served, version):
    damaged = shutil.copytree(version.parent, version.parents[1] / "damaged") / "1"
    (damaged / "manifest.json").write_text("{}")
    eventually(lambda: "damaged" in served.http.get("/v1/models").json()["statuses"])
    infer, statistics = served.inference.ModelInfer, served.inference.ModelStatistics
    predict = served.prediction.Predict
    status = get_model_status_pb2.GetModelStatusRequest()
    for name, code in (("damaged", Code.UNAVAILABLE), ("invented", Code.NOT_FOUND)):
        assert error(infer, infer_request(model_name=name)).code() == code
        assert error(predict, predict_request(name=name)).code() == code
        assert error(statistics, service_pb2.ModelStatisticsRequest(name=name)).code() == code
        status.model_spec.name = name
        if name == "damaged":
            served.models.GetModelStatus(status)
        else:
            assert error(served.models.GetModelStatus, status).code() == code
    text = served.http.get("/metrics").text
    for route, answered in (
        ("inference.GRPCInferenceService/ModelInfer", 503),
        ("inference.GRPCInferenceService/ModelStatistics", 503),
        ("tensorflow.serving.PredictionService/Predict", 503),
        ("tensorflow.serving.ModelService/GetModelStatus", 200),
    ):
        assert f'highway_requests_total{{model="damaged",route="/{route}",status="{answered}",version=""}} ' in text
        assert f'highway_requests_total{{model="",route="/{route}",status="404",version=""}} ' in text
    assert 'model="invented"' not in text


def test_malformed_messages_are_refused(served):
    for method in ("inference.GRPCInferenceService/ModelInfer", "tensorflow.serving.PredictionService/Predict"):
        call = served.channel.unary_unary(f"/{method}")
        assert wrong(call, b"\xff\xff\xff")[0] in (Code.NOT_FOUND, Code.INVALID_ARGUMENT)
    valid = infer_request().SerializeToString()
    call = served.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    assert wrong(call, valid + b"\xff") == (Code.INVALID_ARGUMENT, "the message is not a ModelInferRequest.")
    assert wrong(served.channel.unary_unary("/inference.GRPCInferenceService/Other"), b"")[0] == Code.UNIMPLEMENTED


def test_health(served, version):
    def status(name):
        return served.health.Check(health_pb2.HealthCheckRequest(service=name)).status

    serving = health_pb2.HealthCheckResponse.SERVING
    names = ("", "inference.GRPCInferenceService", "tensorflow.serving.PredictionService")
    eventually(lambda: [status(name) for name in names] == [serving] * 3)
    assert status("liveness") == serving
    assert wrong(served.health.Check, health_pb2.HealthCheckRequest(service="other"))[0] == Code.NOT_FOUND
    # A watch would keep it.
    watch = served.health.Watch(health_pb2.HealthCheckRequest(service="n" * SMALL))
    assert watch.code() == Code.INVALID_ARGUMENT


def test_health_outlives_an_unexpected_error(served, monkeypatch):
    def status():
        return served.health.Check(health_pb2.HealthCheckRequest()).status

    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    eventually(lambda: status() == serving)

    async def fail(_):
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(About, "check_ready", fail)
        eventually(lambda: status() == not_serving)
    eventually(lambda: status() == serving)


def test_readiness_ends_with_the_drain_and_the_port_closes_with_that_of_http(served, monkeypatch):
    def ready():
        return served.health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING

    eventually(ready)
    served.settings.draining.set()
    eventually(lambda: not ready())
    assert not served.inference.ServerReady(service_pb2.ServerReadyRequest()).ready
    assert not served.inference.ModelReady(service_pb2.ModelReadyRequest(name="tiny")).ready
    assert served.inference.ModelInfer(infer_request()).model_version == "1"

    started, predict = [], Batcher.predict

    async def slow_predict(*arguments):
        started.append(True)
        while not refused():
            await asyncio.sleep(0.01)
        return await predict(*arguments)

    def refused():
        with socket.socket() as attempt:
            return attempt.connect_ex(served.address) != 0

    monkeypatch.setattr(Batcher, "predict", slow_predict)
    accepted = served.inference.ModelInfer.future(infer_request())
    eventually(lambda: started)
    served.settings.closing.set()
    assert accepted.result(20).model_version == "1"


def test_every_call_has_a_request_id_and_a_trace(served):
    trace = "0af7651916cd43dd8448eb211c80319c"
    sent = (("x-request-id", "seven"), ("traceparent", f"00-{trace}-b7ad6b7169203331-01"))
    _, answered = served.inference.ModelInfer.with_call(infer_request(), metadata=sent)
    failed = error(served.inference.ModelInfer, infer_request(model_name="other"), metadata=sent)
    for call in (answered, failed):
        found = dict(call.trailing_metadata())
        assert (found["x-request-id"], found["traceparent"][3:35]) == ("seven", trace)
    _, answered = served.inference.ServerLive.with_call(service_pb2.ServerLiveRequest())
    found = dict(answered.trailing_metadata())
    assert found["x-request-id"] == found["traceparent"][3:35]


def test_the_oldest_answers_are_late_while_too_many_bytes_are_unread():
    limits = CallLimits(60, 9)
    for port in range(4):
        context = Mock(**{"done.return_value": False, "peer.return_value": f"ipv4:10.0.0.1:{port}"})
        limits.answered(context, calls.UNREAD // 2)
    assert limits.late() == {("10.0.0.1", 0), ("10.0.0.1", 1)}


def test_answers_must_be_read_in_time(settings):
    with Served(settings, Limits(body=0.3)) as served:
        # A client that grants five bytes of an answer, and asks for none.
        window = [("grpc.http2.lookahead_bytes", 5), ("grpc.http2.bdp_probe", 0)]
        with grpc.insecure_channel("{}:{}".format(*served.address), window) as channel:
            call = channel.stream_stream("/inference.GRPCInferenceService/ModelInfer")(
                iter([infer_request().SerializeToString()])
            )
            eventually(lambda: call.code() == Code.UNAVAILABLE)
        assert served.inference.ModelInfer(infer_request()).model_version == "1"
        assert 'highway_connections_cut_total{why="answer"}' in served.http.get("/metrics").text


def test_calls_and_connections_from_one_address_are_limited(settings):
    with Served(settings, Limits(header=60, address=1)) as served:

        def code():
            return served.inference.ServerLive.future(service_pb2.ServerLiveRequest()).code()

        with incomplete(served) as call:
            # The call and this request itself; a call of `code` must not come first.
            eventually(lambda: "highway_requests_in_flight 2.0" in served.http.get("/metrics").text)
            assert code() == Code.UNAVAILABLE
            call.cancel()
        eventually(lambda: code() == Code.OK)
        others = [socket.create_connection(served.address, 20) for _ in range(3)]
        ConnectionLimits(served.address[1], 1, CallLimits(60, 1)).check()
        for other in others:
            with other:
                while other.recv(2**16):
                    pass


def test_a_watch_of_health_ends_with_the_server(served):
    found = served.health.Watch(health_pb2.HealthCheckRequest())
    serving = health_pb2.HealthCheckResponse
    assert next(one.status for one in found if one.status != serving.NOT_SERVING) == serving.SERVING
    served.settings.closing.set()
    assert [one.status for one in found] == [serving.NOT_SERVING]


def test_addresses():
    assert client_of("ipv4:127.0.0.1:1024") == ("127.0.0.1", 1024)
    assert client_of("ipv6:%5B::1%5D:1024") == ("::1", 1024)
    # Its connection is gone.
    assert client_of("") == ("", 0)


def test_a_key(version):
    with Served(Settings(models=version.parents[1], api_key="secret")) as served:
        for metadata in ((), (("x-api-key", "wrong"),), (("authorization", "Bearer wrong"),)):
            code, details = wrong(served.inference.ModelInfer, infer_request(), metadata=metadata)
            assert (code, "the key is missing or wrong" in details) == (Code.UNAUTHENTICATED, True)
        for metadata in ((("x-api-key", "secret"),), (("authorization", "Bearer secret"),)):
            assert served.inference.ModelInfer(infer_request(), metadata=metadata).model_version == "1"
        assert served.inference.ServerLive(service_pb2.ServerLiveRequest()).live
        eventually(lambda: served.health.Check(health_pb2.HealthCheckRequest()).status == 1)


def test_limits(version):
    with Served(Settings(models=version.parents[1], body=1000)) as served:
        code, details = wrong(served.inference.ModelInfer, infer_request(np.zeros((100, 4, 3, 1), "uint8")))
        assert (code, "1000" in details) == (Code.RESOURCE_EXHAUSTED, True)


def test_a_port_in_use_is_noticed(served):
    with pytest.raises(OSError, match="in use"):
        reserve(*served.reserved.getsockname()[:2])

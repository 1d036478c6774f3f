"""Calls of KServe's clients, for `recorder.py`; runs in an environment of its own, with kserve installed."""

import asyncio
import contextlib
import sys
from functools import partial
from pathlib import Path

import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

URL, GRPC, FILES = sys.argv[1:]
IMAGES = np.load(Path(FILES, "images.npy"))
PNG = Path(FILES, "image.png").read_bytes()


def request(binary, dtype="UINT8", **fields):
    tensor = InferInput("image", list(IMAGES.shape), dtype)
    tensor.set_data_from_numpy(IMAGES.astype({"UINT8": "uint8", "FP32": "float32"}[dtype]), binary_data=binary)
    return InferRequest(model_name="tiny", infer_inputs=[tensor], request_id="seven", **fields)


def files():
    tensor = InferInput("image_bytes", [2], "BYTES")
    tensor.set_data_from_numpy(np.array([PNG, PNG], object), binary_data=True)
    return InferRequest(model_name="tiny", infer_inputs=[tensor])


def check(answer):
    found = {output.name: output.as_numpy() for output in answer.outputs}
    assert found["class_id"].tolist() == found["probabilities"].argmax(-1).tolist()


async def first_protocol():
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        assert await client.is_server_live(URL)
        assert await client.is_model_ready(URL, "tiny")
        answer = await client.infer(URL, {"instances": IMAGES.tolist()}, model_name="tiny")
        assert len(answer["predictions"]) == len(IMAGES)
        with contextlib.suppress(httpx.HTTPStatusError):
            await client.is_model_ready(URL, "other")
            raise AssertionError("a model that does not exist is ready")


async def second_protocol():
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        assert await client.is_server_live(URL)
        assert await client.is_server_ready(URL)
        assert await client.is_model_ready(URL, "tiny")
        assert not await client.is_model_ready(URL, "other")
        infer = partial(client.infer, URL, model_name="tiny")
        for binary in (False, True):
            check(await infer(request(binary)))
            check(await infer(request(binary, "FP32")))
            check(await infer(request(binary, parameters={"binary_data_output": True})))
        wanted = [RequestedOutput("probabilities", {"binary_data": True}), RequestedOutput("class_id")]
        check(await infer(request(True, request_outputs=wanted)))
        check(await infer(files()))


async def grpc():
    async with InferenceGRPCClient(GRPC) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("tiny")
        assert not await client.is_model_ready("other")
        for binary in (False, True):
            check(await client.infer(request(binary)))
        check(await client.infer(files()))


async def main():
    await first_protocol()
    await second_protocol()
    await grpc()


asyncio.run(main())

"""`POST /predict/{model}`: pictures as they are, and an answer that people can read."""

import math
from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from serving.answers import Answer
from serving.api.describe import JSON, PICTURES_BODY, RAW, answers
from serving.backends import Outputs, Served, values
from serving.catalog import Catalog
from serving.errors import LimitError, RequestError
from serving.manifest import GATE_MEANS, PROBABILITIES, Manifest
from serving.model import top as most_probable
from serving.predicting import Predictor
from serving.protocols import request as requests
from serving.protocols.request import check_shape

FORM = "multipart/form-data"


class Asked(BaseModel):
    """What may stand behind the question mark."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    version: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """None is the newest that is served."""
    label: str | None = None
    """Of a version, in its place."""
    top: Annotated[int, Field(ge=1, le=1000)] = 3
    """How many classes to name."""
    explain: bool = False
    """Add the mean gate of each layer."""
    seen: bool = False
    """Add the pixels that the net saw."""


NOTHING = Asked()


def router(catalog: Catalog[Served], predictor: Predictor) -> APIRouter:
    """The route."""
    made = APIRouter(tags=["Pictures"])
    path = "/predict/{name}"

    async def predict(request: Request) -> Response:
        name, asked = request.path_params["name"], _asked(request)

        def find() -> Served:
            served = catalog.find(name, asked.version, asked.label)
            if asked.explain and served.manifest.gates is None:
                raise RequestError(
                    f"version {served.manifest.version} of model {name!r} was exported without its gates. "
                    "Export it with `highway export --gates`."
                )
            return served

        served = find()
        names, given = await _pictures(request, served.manifest, predictor.settings.pictures)
        served, images, outputs = await predictor.predict(served, given, find)
        size = values(outputs) + asked.seen * images.size
        made = await predictor.offload(size, _answer, names, served.manifest, images, outputs, asked)
        return Response(made, media_type=JSON)

    extra = answers(None, path, PICTURES_BODY)
    extra["parameters"] += [
        {"name": name, "in": "query", "description": schema.pop("description"), "schema": schema}
        for name, schema in Asked.model_json_schema()["properties"].items()
    ]
    made.add_api_route(
        path, predict, methods=["POST"], summary="Predict pictures", openapi_extra=extra,
        responses={200: {"model": Answer, "description": "Predictions."}},
    )  # fmt: skip
    return made


def _asked(request: Request) -> Asked:
    if not request.scope["query_string"]:
        return NOTHING
    try:
        asked = Asked.model_validate(dict(request.query_params))
    except ValidationError as error:
        first = error.errors()[0]
        raise RequestError(f"query.{first['loc'][0]}: {first['msg']}.") from None
    if asked.version is not None and asked.label is not None:
        raise RequestError("give either a version or a label, not both.")
    return asked


async def _pictures(request: Request, manifest: Manifest, most: int) -> tuple[list[str | None], requests.Request]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == FORM:
        found = await _form(request, most)
        names, files = [name for name, _ in found], [file for _, file in found]
        shown = [name or f"picture {number + 1}" for number, name in enumerate(names)]
        return [*names], requests.Request(None, files, shown)
    body = await request.body()
    if not body:
        raise RequestError(
            f'the body is empty. Send a picture file, a form ({FORM}) with several in the field "picture", or raw '
            f"pixels ({RAW})."
        )
    if kind != RAW:
        return [None], requests.Request(None, [body])
    shape = manifest.input.shape[1:]
    if len(body) % math.prod(shape):
        check_shape((len(body),), manifest)
    images = np.frombuffer(body, np.uint8).reshape(-1, *shape)
    if len(images) > most:
        raise _too_many(most)
    return [None] * len(images), requests.Request(images, None)


def _too_many(most: int) -> LimitError:
    return LimitError(f"more pictures are in the request than the limit of {most}.")


class _InMemory(MultiPartParser):
    # Bodies are limited, and where the endpoint runs there may be no disk to write to.
    spool_max_size = 2**40
    _ended = False

    def on_end(self) -> None:
        self._ended = True

    async def parse(self) -> FormData:
        form = await super().parse()
        if not self._ended:
            for file in self._files_to_close_on_error:
                file.close()
            raise MultiPartException("its last part has no end.")
        return form


async def _form(request: Request, most: int) -> list[tuple[str, bytes]]:
    try:
        form = await _InMemory(request.headers, request.stream(), max_files=most, max_fields=16).parse()
    except MultiPartException as error:
        if error.message.startswith("Too many files"):
            raise _too_many(most) from None
        raise RequestError(f"the form cannot be read: {error.message}") from None
    except UnicodeError as error:
        # A charset that somebody made up, for the names in the form.
        raise RequestError(f"the names in the form cannot be read: {error}.") from None
    files = [value for value in form.getlist("picture") if isinstance(value, UploadFile)]
    # Some charsets decode to what is no text.
    found = [((file.filename or "").encode(errors="replace").decode(), await file.read()) for file in files]
    await form.close()
    if not found:
        raise RequestError('the form has no file in a field "picture".')
    return found


def _answer(names: list[str | None], manifest: Manifest, images: np.ndarray, outputs: Outputs, asked: Asked) -> bytes:
    probabilities = outputs[PROBABILITIES]
    predictions = []
    for number, classes in enumerate(most_probable(probabilities, asked.top)):
        row = probabilities[number]
        one: dict[str, Any] = {
            "top": [{"label": manifest.labels[index], "probability": float(row[index])} for index in classes]
        }
        if names[number] is not None:
            one["file"] = names[number]
        if asked.explain:
            one["gates"] = outputs[GATE_MEANS][number]
        if asked.seen:
            one["seen"] = images[number]
        predictions.append(one)
    whole: dict[str, Any] = {"model": manifest.name, "version": manifest.version, "predictions": predictions}
    if asked.explain:
        whole["layers"] = manifest.gates
    return orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY)

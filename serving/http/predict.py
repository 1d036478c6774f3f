"""`POST /predict/{model}`: image files, raw pixels or rows of a table in, labels and probabilities, or values, out."""

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Annotated, Any, cast
from urllib.parse import unquote

import numpy as np
from fastapi import APIRouter, Request, Response
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from serving.engine.backends import ServedVersion, count_values
from serving.engine.catalog import Catalog
from serving.engine.predictor import Predictor
from serving.errors import LimitError, RequestError, in_bytes
from serving.http.middleware import record_of
from serving.http.openapi import EXAMPLES_BODY, JSON, RAW, operation
from serving.manifest import WITHOUT_GATES, Manifest
from serving.protocols import predict as protocol
from serving.protocols import request as protocol_request
from serving.schemas import MOST_CLASSES, Answer

FORM = "multipart/form-data"
# Parts of a form beyond the number of files that a request may have.
FIELDS = 16
# Bytes of a form that are parsed before other requests have their turn.
SLICE = 2**16
# Start of files that some clients send as `application/octet-stream`; pixels practically never start like this.
_FILE = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff[\xc0-\xfe]|GIF8[79]a|RIFF....WEBP|II\*\0|MM\0\*", re.DOTALL)
# A file's name as older clients send those that are not ASCII.
_EXTENDED_NAME = re.compile(r"""; *filename\*=utf-8'[^';]*'([^;\s"]+)""", re.IGNORECASE)


def _without_underscores(given: Any) -> Any:
    if isinstance(given, str) and not (given.isascii() and given.isdecimal()):
        raise ValueError("not in decimal digits")
    return given


# Python reads 1_0 as 10.
_Integer = Annotated[int, BeforeValidator(_without_underscores)]


class Query(BaseModel):
    """Query parameters."""

    # A misspelt parameter would change nothing, without a word.
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, extra="forbid")

    version: Annotated[_Integer, Field(ge=1, lt=2**63)] | None = None
    """Number of the version; None is the newest in service."""
    label: str | None = None
    """Label of a version, instead of its number."""
    top: Annotated[_Integer, Field(ge=1, le=MOST_CLASSES)] = 3
    """Number of classes to return."""
    explain: bool = False
    """Add the mean gate of each layer."""
    seen: bool = False
    """Add the pixels that the net saw."""
    maps: bool = False
    """Add where in the image each convolutional layer opens its gates, if the version computes that."""
    segments: bool = False
    """Add each digit of an image file, from left to right, if the version finds digits."""


DEFAULT = Query()
# Of the parameters that are neither texts nor switches.
_EXPECTED = {"version": "a positive integer", "top": f"an integer from 1 to {MOST_CLASSES:,}"}


def router(catalog: Catalog[ServedVersion], predictor: Predictor) -> APIRouter:
    """Returns the route."""
    routes = APIRouter(tags=["Images"])
    path = "/predict/{name}"

    async def predict(request: Request) -> Response:
        name, query = request.path_params["name"], _query(request)

        def find() -> ServedVersion:
            served = record_of(request).served = catalog.find(name, query.version, query.label)
            if query.explain and served.manifest.gates is None:
                raise RequestError(f"version {served.manifest.version} of model {name!r} {WITHOUT_GATES}")
            return served

        served = find()
        if served.manifest.is_table:
            return await predict_rows(request, served, query, find)
        names, parsed = await _images(request, served.manifest, predictor.settings.images)
        if query.segments:
            parsed = replace(parsed, segments=True)
        served, images, outputs, boxes, crops = await predictor.predict(served, parsed, find, query.maps)
        size = count_values(outputs) + query.seen * images.size
        shown = images if query.seen else None
        content = protocol.Content(names, shown, outputs, boxes, crops, query.top, query.explain, query.segments)
        body = await predictor.offload(size, protocol.format_images, content, served.manifest)
        return Response(body, media_type=JSON)

    async def predict_rows(
        request: Request, served: ServedVersion, query: Query, find: Callable[[], ServedVersion]
    ) -> Response:
        kind = _kind(request)
        if kind == FORM or kind.startswith("image/"):
            raise RequestError(f"the request has images. {protocol_request.expected(served.manifest)}")
        body, limit = await request.body(), predictor.settings.images
        parsed = await predictor.offload(len(body), protocol.parse_rows, body, served.manifest, limit)
        served, _, outputs, *_ = await predictor.predict(served, parsed, find)
        more = served.manifest, parsed.warnings, query.top, query.explain
        body = await predictor.offload(count_values(outputs), protocol.format_rows, outputs, *more)
        return Response(body, media_type=JSON)

    extra = operation(None, path, EXAMPLES_BODY)
    extra["parameters"] += [
        {"name": name, "in": "query", "description": schema.pop("description"), "schema": schema}
        for name, schema in Query.model_json_schema()["properties"].items()
    ]
    routes.add_api_route(
        path, predict, methods=["POST"], summary="Predict images or rows", openapi_extra=extra,
        responses={200: {"model": Answer, "description": "Predictions."}},
    )  # fmt: skip
    return routes


def _query(request: Request) -> Query:
    if not request.scope["query_string"]:
        return DEFAULT
    try:
        query = Query.model_validate(given := dict(request.query_params))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            known = ", ".join(Query.model_fields)
            raise RequestError(f"there is no query parameter {first['loc'][0]!r}. There are: {known}.") from None
        name = str(first["loc"][0])
        raise RequestError(
            f"the query parameter {name!r} is {_EXPECTED.get(name, 'true or false')}. Received: {first['input']!r}."
        ) from None
    if len(given) < len(pairs := request.query_params.multi_items()):
        twice = next(name for name in given if sum(name == one for one, _ in pairs) > 1)
        raise RequestError(f"the query parameter {twice!r} is given more than once. Give it once.")
    if query.version is not None and query.label is not None:
        raise RequestError("give either a version or a label, not both.")
    return query


async def _images(
    request: Request, manifest: Manifest, limit: int
) -> tuple[list[str | None], protocol_request.Request]:
    """Reads the images of a request, with their names for the response."""
    kind = _kind(request)
    if kind == FORM:
        found = await _form(request, limit)
        names, files = [name for name, _ in found], [file for _, file in found]
        shown = [name or f"image {number + 1}" for number, name in enumerate(names)]
        return [*names], protocol_request.Request(None, files, shown)
    body = await request.body()
    if not body:
        raise RequestError(
            f"the body is empty. Send an image file, a form ({FORM}) with several in fields of any name, or raw pixels "
            f"({RAW})."
        )
    if kind == JSON and not _FILE.match(body):
        raise RequestError(f"the request has JSON, as for rows of a table. {protocol_request.expected(manifest)}")
    if kind != RAW or _FILE.match(body):
        return [None], protocol_request.Request(None, [body])
    shape = manifest.input.shape[1:]
    if len(body) % (size := math.prod(shape)):
        raise RequestError(
            f"the body has {in_bytes(len(body))}, and an image of model {manifest.name!r} has {size:,} "
            f"({' x '.join(map(str, shape))}). Send whole images, or an image file with its own content type, such as "
            "image/png."
        )
    images = np.frombuffer(body, np.uint8).reshape(-1, *shape)
    if len(images) > limit:
        raise _too_many(limit)
    return [None] * len(images), protocol_request.Request(images, None)


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_many(limit: int) -> LimitError:
    return LimitError(f"the request has more images than the limit of {limit}.")


async def _form(request: Request, limit: int) -> list[tuple[str, bytes]]:
    """Reads the files of a form, with their names.

    The names of the fields do not matter: `curl -F file=@seven.png` is as clear as `picture`.
    """
    _, options = parse_options_header(request.headers["content-type"])
    if not (boundary := options.get("boundary")):
        raise RequestError("the form cannot be read: its content type names no boundary.")
    files: list[tuple[str, bytearray]] = []
    # Other fields that are not files are dropped.
    content: bytearray | None = None
    try:
        with PushMultipartParser(boundary, max_segment_count=limit + FIELDS) as parser:
            async for part in _slices(request):
                for event in parser.parse(part):
                    if isinstance(event, MultipartSegment):
                        content = None
                        if (name := _file_name(event)) is not None:
                            content = bytearray()
                            files.append((name, content))
                        elif event.name in Query.model_fields:
                            raise RequestError(
                                f"the form has a field {event.name!r}, which is a query parameter. Put it into the "
                                f"address: ?{event.name}=..."
                            )
                        # Before the parser meets its own limit, on parts of any kind.
                        if len(files) > limit:
                            raise _too_many(limit)
                    elif event and content is not None:
                        content += event
    except MultipartError as error:
        if any(isinstance(one, UnicodeDecodeError) for one in error.args):
            raise RequestError(
                "the form cannot be read: the name of a field or file is not UTF-8. Rename it."
            ) from None
        raise RequestError(f"the form cannot be read: {error}.") from None
    if not files:
        raise RequestError("the form has no file. With curl: -F file=@seven.png")
    # Readers of files accept both.
    return cast(list[tuple[str, bytes]], files)


def _file_name(part: MultipartSegment) -> str | None:
    """Returns the name of a file; None for other fields."""
    if part.filename is None and (found := _EXTENDED_NAME.search(part.header("Content-Disposition", ""))):
        return unquote(found[1])
    return part.filename


async def _slices(request: Request) -> AsyncGenerator[bytes, None]:
    async for part in request.stream():
        for start in range(0, len(part), SLICE):
            yield part[start : start + SLICE]
            await asyncio.sleep(0)

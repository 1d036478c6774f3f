"""Hostile requests to the model `dense`: large or malformed bodies, and image files that are expensive to decode."""

import base64
import io
import json
import struct
import zlib
from collections.abc import Callable
from functools import cache

import numpy as np
from PIL import Image

# Bytes of the largest bodies, a little below the limit.
LARGE = 30_000_000
_PREDICT, _INFER, _FILES = "/v1/models/dense:predict", "/v2/models/dense/infer", "/predict/dense"
_FORM = "multipart/form-data; boundary=b"
_JSON, _PNG, _RAW = "application/json", "image/png", "application/octet-stream"
_PART = b'--b\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\n'


def post(path: str, kind: str, body: bytes) -> bytes:
    """Returns the bytes of a request that closes its connection."""
    return b"%s\r\nContent-Length: %d\r\n\r\n%s" % (_head(path, kind), len(body), body)


def _chunked(chunk: bytes, count: int) -> bytes:
    parts = b"%x\r\n%s\r\n" % (len(chunk), chunk) * count
    return b"%s\r\nTransfer-Encoding: chunked\r\n\r\n%s0\r\n\r\n" % (_head(_FILES, _PNG), parts)


def _head(path: str, kind: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}".encode()


@cache
def photograph(width: int, height: int, form: str = "PNG") -> bytes:
    """Returns a grainy gradient in colour, in a file."""
    pixels = np.random.default_rng(0).integers(0, 32, (height, width, 3), np.uint8)
    pixels += np.linspace(0, 200, width, dtype=np.uint8)[:, None]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form, **({"compress_level": 1} if form == "PNG" else {"quality": 90}))
    return buffer.getvalue()


def one_bit(width: int, height: int) -> bytes:
    """Returns a black PNG file of some kilobytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = zlib.compress(bytes((1 + -(-width // 8)) * height), 9)
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _base64() -> bytes:
    file = base64.b64encode(bytes(LARGE * 3 // 4 - 100))
    return b'{"inputs":[{"name":"image_bytes","datatype":"BYTES","shape":[1],"data":["' + file + b'"]}]}'


def _form(content: bytes) -> bytes:
    return post(_FILES, _FORM, _PART + content + b"\r\n--b--\r\n")


# Requests to the model `dense` by name, made of 256 images; each closes its connection.
ATTACKS: dict[str, Callable[[np.ndarray], bytes]] = {
    "nothing": lambda _: b"",
    "JSON of 256 images": lambda images: post(_PREDICT, _JSON, json.dumps({"instances": images.tolist()}).encode()),
    "JSON of 30 MB, empty lists": lambda _: post(_PREDICT, _JSON, b'{"instances":[' + b"[]," * (LARGE // 3) + b"[]]}"),
    "JSON of 30 MB, a string": lambda _: post(_PREDICT, _JSON, b'{"instances":["' + b"a" * LARGE + b'"]}'),
    "JSON of 30 MB, base64": lambda _: post(_INFER, _JSON, _base64()),
    "chunks of 1 byte": lambda _: _chunked(b"x", 2_000_000),
    "chunks of 64 bytes": lambda _: _chunked(b"x" * 64, 400_000),
    "form, many small files": lambda _: _form((b"x\r\n" + _PART) * 20_000),
    "form, 30 MB of line ends": lambda _: _form(b"\r\n" * (LARGE // 2)),
    "form, 30 MB of near boundaries": lambda _: _form(b"\r\n--" * (LARGE // 4)),
    "form, 30 MB before its start": lambda _: post(_FILES, _FORM, b"\r\n" * (LARGE // 2) + _PART + b"x\r\n--b--\r\n"),
    "PNG of 12 megapixels": lambda _: post(_FILES, _PNG, photograph(4000, 3000)),
    "PNG of 7,000 x 7,100 pixels, 1 bit": lambda _: post(_FILES, _PNG, one_bit(7000, 7100)),
    "answer of 256 images": lambda images: post(f"{_FILES}?seen=true&top=10", _RAW, images.tobytes()),
}

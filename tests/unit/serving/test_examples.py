"""Every Python example of `serving`, in its docstrings and its page of the documentation, is run as it stands."""

import ast
import asyncio
import importlib
import inspect
import logging
import re
import socket
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from fastapi.testclient import TestClient
from PIL import Image

from serving import manifest, signature
from serving.client import Client
from serving.engine.settings import Limits, Settings
from serving.errors import UnavailableError
from serving.http.app import make_app
from serving.http.connections import protocol
from serving.model import open_model
from serving.stored_version import Prefix
from tests import table_model, tiny_model

ROOT = Path(__file__).parents[3]
ADDRESS, TF_SERVING = "http://127.0.0.1:8501", "localhost:8500"
IMAGES = np.zeros((2, *tiny_model.SHAPE), np.uint8)


def docstrings():
    """Yields the Example section of each docstring, with its module."""
    for path in sorted((ROOT / "serving").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                text = ast.get_docstring(node) or ""
                for code in re.findall(r"^Example:\n((?:    .*\n?|\n)+)", text, re.MULTILINE):
                    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                    yield pytest.param(module, textwrap.dedent(code), id=f"{module}.{getattr(node, 'name', '')}")


def blocks():
    """Yields the code blocks of the documentation."""
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
        yield pytest.param("builtins", code, id=f"docs/serving.md {number + 1}")


def free():
    return socket.create_server(("127.0.0.1", 0))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the models `demo`, signed, and `houses`, the keys, and images."""
    folder = tmp_path_factory.mktemp("home")
    version = folder / "models" / "demo" / "1"
    tiny_model.write(version)
    table_model.write(folder / "models" / "houses" / "1", regression=True)
    key = Ed25519PrivateKey.generate()
    (folder / "signing.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "signing.pub").write_bytes(public)
    (version / signature.NAME).write_bytes(signature.sign(version, key))
    for name, size in (("seven.jpg", (30, 40)), ("photograph.jpg", (800, 600))):
        Image.new("L", size, 200).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def address(home):
    """The address of an endpoint that runs in a thread."""
    config = uvicorn.Config(make_app(Settings(home / "models")), http=protocol(Limits()), log_config=None, ws="none")
    server, listening = uvicorn.Server(config), free()
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()


def started(app, **options):
    """Replaces `uvicorn.run`, which does not return."""
    uvicorn.Config(app, **options).load()
    with TestClient(app) as client:
        assert client.get("/v2/health/live").status_code == 200


@pytest.fixture(scope="module")
def made(home, address):
    """Objects that the examples use and that take a while to create."""
    return {
        "address": address,
        "settings": Settings(home / "models"),
        "app": make_app(Settings(home / "models")),
        "model": open_model(home / "models" / "demo"),
    }


def stored(version):
    """Returns a version as that of a bucket."""
    sizes = {path.relative_to(version).as_posix(): path.stat().st_size for path in version.rglob("*")}
    return Prefix("s3://bucket/demo/1", sizes, lambda name, start, end: (version / name).read_bytes()[start:end])


@pytest.mark.parametrize(("module", "code"), [*docstrings(), *blocks()])
def test_examples(module, code, home, made, monkeypatch):
    address = made["address"]
    monkeypatch.chdir(home)
    folder = Path("models/demo/1")
    names = {
        **{name: globals()[name] for name in ("make_app", "open_model", "np", "Path", "Image", "Limits", "Settings")},
        **vars(importlib.import_module(module)),
        "uvicorn": SimpleNamespace(run=started),
        **made,
        "images": IMAGES,
        "folder": folder,
        "path": folder / manifest.ONNX,
        "version": stored(folder),
        "manifest": manifest.read(folder) if module.startswith("serving.protocols") else manifest,
        "content": manifest.read(Path("models/houses/1")),
        "session": None,
        "client": Client(address),
        "handler": logging.NullHandler(),
        "log": logging.getLogger("test"),
        "body": b"[1, 2]",
        "orjson": importlib.import_module("orjson"),
        "request": SimpleNamespace(inputs={"image": SimpleNamespace(CopyFrom=lambda _: None)}),
    }
    with free() as closed:
        nobody = f"localhost:{closed.getsockname()[1]}"
    run = compile(
        code.replace(ADDRESS, address).replace(TF_SERVING, nobody),
        module,
        "exec",
        ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )

    async def main():
        result = eval(run, names)
        if inspect.isawaitable(result):
            await result

    if TF_SERVING in code:
        with pytest.raises(UnavailableError):
            asyncio.run(main())
    elif run.co_flags & inspect.CO_COROUTINE:
        asyncio.run(main())
    else:
        exec(run, names)
    names["client"].close()


def test_there_are_examples():
    found = [one.id for one in (*docstrings(), *blocks())]
    assert {"serving.client.Client", "serving.model.open_model", "docs/serving.md 1"} <= set(found)
    assert len(found) > 20

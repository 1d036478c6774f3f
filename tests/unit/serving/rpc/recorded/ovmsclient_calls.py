"""Calls of the client of OpenVINO's model server, for `recorder.py`; runs in an environment of its own."""

import contextlib
import sys
from pathlib import Path

import numpy as np
import ovmsclient

URL, GRPC, FILES = sys.argv[1:]
IMAGES = np.load(Path(FILES, "images.npy"))
PNG = Path(FILES, "image.png").read_bytes()

for client in (ovmsclient.make_grpc_client(GRPC), ovmsclient.make_http_client(URL.removeprefix("http://"))):
    # It asks for version 0 unless another one is named.
    for version in ({}, {"model_version": 1}):
        assert client.get_model_status("tiny", **version)[1]["state"] == "AVAILABLE"
        assert client.get_model_metadata("tiny", **version)
        for images in (IMAGES, IMAGES.astype("float32"), IMAGES.tolist()):
            found = client.predict({"image": images}, "tiny", **version)
            assert found["class_id"].tolist() == found["probabilities"].argmax(-1).tolist()
    # It cannot name a signature.
    assert client.predict({"image_bytes": [PNG, PNG]}, "tiny")["class_id"].shape == (2,)
    for name, version in (("other", 0), ("tiny", 2)):
        with contextlib.suppress(ovmsclient.ModelNotFoundError):
            client.predict({"image": IMAGES}, name, version)
            raise AssertionError("a model or version that does not exist answers")

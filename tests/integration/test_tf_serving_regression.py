"""A regression without gates, whose one output TF Serving writes without its name over REST."""

import asyncio

import httpx2 as httpx
import numpy as np
import pytest
import tensorflow as tf

from serving.tf_serving.over_rest import RestConnection
from tests import tf_serving_double

# It loads TensorFlow.
pytestmark = pytest.mark.slow


def test_a_lone_output_is_read_without_its_name(tmp_path):
    module = tf.Module()
    signature = tf.TensorSpec([None, 3], tf.float32, name="row")
    module.predict = tf.function(lambda row: {"value": tf.reduce_sum(row, 1, keepdims=True)}, [signature])
    tf.saved_model.save(module, str(tmp_path / "houses" / "1"), {"serving_default": module.predict})
    config = tmp_path / "models.config"
    model = 'config { name: "houses" base_path: "/models/houses" model_platform: "tensorflow" }'
    config.write_text(f"model_config_list {{ {model} }}")
    models = tf_serving_double.Models(config, tmp_path)
    models.refresh()
    double = tf_serving_double.rest_server(models, ("127.0.0.1", 0))
    url = f"http://127.0.0.1:{double.server_address[1]}"
    rows = np.float32([[1, 2, 3], [4, 5, 6]])

    async def predict():
        connection = RestConnection(url)
        try:
            return await connection.predict("houses", 1, rows, ("value",), 60.0)
        finally:
            await connection.close()

    try:
        for key, answer in (("instances", "predictions"), ("inputs", "outputs")):
            body = {key: rows.tolist()}
            assert httpx.post(f"{url}/v1/models/houses:predict", json=body).json() == {answer: [[6], [15]]}
        assert asyncio.run(predict())["value"].tolist() == [[6], [15]]
    finally:
        double.shutdown()
        double.server_close()

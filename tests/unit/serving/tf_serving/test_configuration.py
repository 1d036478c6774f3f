"""The configuration files of TF Serving, parsed with its own messages."""

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tensorflow_serving.config import model_server_config_pb2

import serving.tf_serving
from serving import release
from serving.errors import ModelError
from serving.tf_serving import configuration

FOLDER = Path(serving.tf_serving.__file__).parent
# The messages of the other two files are not in `tensorflow-serving-api`. These are their fields, by number, as in
# session_bundle_config.proto and monitoring_config.proto of TF Serving.
MESSAGES = {
    "Int64Value": ((1, "value", "INT64", ""),),
    "BatchingParameters": (
        (1, "max_batch_size", "MESSAGE", "Int64Value"),
        (2, "batch_timeout_micros", "MESSAGE", "Int64Value"),
        (3, "max_enqueued_batches", "MESSAGE", "Int64Value"),
        (4, "num_batch_threads", "MESSAGE", "Int64Value"),
    ),
    "PrometheusConfig": ((1, "enable", "BOOL", ""), (2, "path", "STRING", "")),
    "MonitoringConfig": ((1, "prometheus_config", "MESSAGE", "PrometheusConfig"),),
}


def parse(name, text):
    """Parses a text as one of `MESSAGES`."""
    file = descriptor_pb2.FileDescriptorProto(name="files.proto", package="files", syntax="proto3")
    for message, fields in MESSAGES.items():
        made = file.message_type.add(name=message)
        for number, field, kind, of in fields:
            one = made.field.add(name=field, number=number, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
            one.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
            if of:
                one.type_name = f".files.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"files.{name}"))
    return text_format.Parse(text, kind())


def parsed(root):
    config = text_format.Parse(configuration.text(release.read_all(root)), model_server_config_pb2.ModelServerConfig())
    return list(config.model_config_list.config)


@pytest.fixture
def root(tmp_path):
    for version in (1, 2, 3):
        (tmp_path / "digits" / str(version)).mkdir(parents=True)
    return tmp_path


def test_a_model_without_a_release(root):
    (model,) = parsed(root)
    assert (model.name, model.base_path, model.model_platform) == ("digits", "/models/digits", "tensorflow")
    # The previous version still answers while endpoints switch to the new one.
    assert model.model_version_policy.latest.num_versions == 2
    assert not model.version_labels


def test_a_release(root):
    wanted = release.Release(versions=(1, 3), labels={"stable": 1, "canary": 3})
    (root / "digits" / release.NAME).write_text(wanted.model_dump_json())
    (model,) = parsed(root)
    assert list(model.model_version_policy.specific.versions) == [1, 3]
    assert dict(model.version_labels) == {"stable": 1, "canary": 3}


@pytest.mark.parametrize("name", ["a model", 'of "mine"', "back\\slash", "naïve", "tab\t", "new\nline"])
def test_a_folder_may_have_any_name(tmp_path, name):
    (tmp_path / name / "1").mkdir(parents=True)
    (model,) = parsed(tmp_path)
    assert (model.name, model.base_path) == (name, f"/models/{name}")


def test_every_model_and_nothing_else(root):
    (root / "cats" / "7").mkdir(parents=True)
    (root / "notes").mkdir()
    (root / ".export-1" / "x").mkdir(parents=True)
    assert [model.name for model in parsed(root)] == ["cats", "digits"]


def test_an_empty_repository(tmp_path):
    assert parsed(tmp_path) == []


def test_a_damaged_release_is_reported(root):
    (root / "digits" / release.NAME).write_text("{")
    with pytest.raises(ModelError, match="damaged"):
        release.read_all(root)


def test_batching_does_not_wait():
    read = parse("BatchingParameters", (FOLDER / "batching.config").read_text())
    assert read.HasField("batch_timeout_micros")
    assert read.batch_timeout_micros.value == 0
    # The endpoint sends at most this many images.
    from serving.engine.settings import Settings

    assert read.max_batch_size.value == Settings(Path()).batch
    assert read.num_batch_threads.value >= 1


def test_monitoring_is_on():
    read = parse("MonitoringConfig", (FOLDER / "monitoring.config").read_text()).prometheus_config
    assert (read.enable, read.path) == (True, "/monitoring/prometheus/metrics")

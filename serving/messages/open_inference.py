"""Messages of the Open Inference Protocol's gRPC service, with Triton's extensions, without Triton's client."""

from serving.messages.protobuf import message_classes

_ENUMS = {
    "DataType": {
        "TYPE_INVALID": 0, "TYPE_BOOL": 1, "TYPE_UINT8": 2, "TYPE_UINT16": 3, "TYPE_UINT32": 4, "TYPE_UINT64": 5,
        "TYPE_INT8": 6, "TYPE_INT16": 7, "TYPE_INT32": 8, "TYPE_INT64": 9, "TYPE_FP16": 10, "TYPE_FP32": 11,
        "TYPE_FP64": 12, "TYPE_STRING": 13, "TYPE_BF16": 14,
    },
    "Format": {"FORMAT_NONE": 0, "FORMAT_NHWC": 1, "FORMAT_NCHW": 2},
}  # fmt: skip
_NAMED = ((1, "name", "string"), (2, "version", "string"))
_TENSOR = (
    (1, "name", "string"),
    (2, "datatype", "string"),
    (3, "shape", "*int64"),
    (4, "parameters", "map InferParameter"),
    (5, "contents", "InferTensorContents"),
)
_MESSAGES = {
    "ServerLiveRequest": (),
    "ServerLiveResponse": ((1, "live", "bool"),),
    "ServerReadyRequest": (),
    "ServerReadyResponse": ((1, "ready", "bool"),),
    "ModelReadyRequest": _NAMED,
    "ModelReadyResponse": ((1, "ready", "bool"),),
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": ((1, "name", "string"), (2, "version", "string"), (3, "extensions", "*string")),
    "ModelMetadataRequest": _NAMED,
    "TensorMetadata": ((1, "name", "string"), (2, "datatype", "string"), (3, "shape", "*int64")),
    "ModelMetadataResponse": (
        (1, "name", "string"),
        (2, "versions", "*string"),
        (3, "platform", "string"),
        (4, "inputs", "*TensorMetadata"),
        (5, "outputs", "*TensorMetadata"),
    ),
    "InferParameter": (
        (1, "bool_param", "bool"),
        (2, "int64_param", "int64"),
        (3, "string_param", "string"),
        (4, "double_param", "double"),
        (5, "uint64_param", "uint64"),
    ),
    "InferTensorContents": (
        (1, "bool_contents", "*bool"),
        (2, "int_contents", "*int32"),
        (3, "int64_contents", "*int64"),
        (4, "uint_contents", "*uint32"),
        (5, "uint64_contents", "*uint64"),
        (6, "fp32_contents", "*float"),
        (7, "fp64_contents", "*double"),
        (8, "bytes_contents", "*bytes"),
    ),
    "InferInputTensor": _TENSOR,
    "InferOutputTensor": _TENSOR,
    "InferRequestedOutputTensor": ((1, "name", "string"), (2, "parameters", "map InferParameter")),
    "ModelInferRequest": (
        (1, "model_name", "string"),
        (2, "model_version", "string"),
        (3, "id", "string"),
        (4, "parameters", "map InferParameter"),
        (5, "inputs", "*InferInputTensor"),
        (6, "outputs", "*InferRequestedOutputTensor"),
        (7, "raw_input_contents", "*bytes"),
    ),
    "ModelInferResponse": (
        (1, "model_name", "string"),
        (2, "model_version", "string"),
        (3, "id", "string"),
        (4, "parameters", "map InferParameter"),
        (5, "outputs", "*InferOutputTensor"),
        (6, "raw_output_contents", "*bytes"),
    ),
    "ModelConfigRequest": _NAMED,
    "ModelTensorReshape": ((1, "shape", "*int64"),),
    "ModelInput": (
        (1, "name", "string"),
        (2, "data_type", "DataType"),
        (3, "format", "Format"),
        (4, "dims", "*int64"),
        (5, "reshape", "ModelTensorReshape"),
        (8, "optional", "bool"),
    ),
    "ModelOutput": (
        (1, "name", "string"),
        (2, "data_type", "DataType"),
        (3, "dims", "*int64"),
        (4, "label_filename", "string"),
        (5, "reshape", "ModelTensorReshape"),
    ),
    "Specific": ((1, "versions", "*int64"),),
    "ModelVersionPolicy": ((3, "specific", "Specific"),),
    "ModelConfig": (
        (1, "name", "string"),
        (2, "platform", "string"),
        (3, "version_policy", "ModelVersionPolicy"),
        (4, "max_batch_size", "int32"),
        (5, "input", "*ModelInput"),
        (6, "output", "*ModelOutput"),
        (8, "default_model_filename", "string"),
        (17, "backend", "string"),
    ),
    "ModelConfigResponse": ((1, "config", "ModelConfig"),),
    "ModelStatisticsRequest": _NAMED,
    "StatisticDuration": ((1, "count", "uint64"), (2, "ns", "uint64")),
    "InferStatistics": (
        (1, "success", "StatisticDuration"),
        (2, "fail", "StatisticDuration"),
        (3, "queue", "StatisticDuration"),
        (4, "compute_input", "StatisticDuration"),
        (5, "compute_infer", "StatisticDuration"),
    ),
    "InferBatchStatistics": ((1, "batch_size", "uint64"), (3, "compute_infer", "StatisticDuration")),
    "ModelStatistics": (
        (1, "name", "string"),
        (2, "version", "string"),
        (3, "last_inference", "uint64"),
        (4, "inference_count", "uint64"),
        (5, "execution_count", "uint64"),
        (6, "inference_stats", "InferStatistics"),
        (7, "batch_stats", "*InferBatchStatistics"),
    ),
    "ModelStatisticsResponse": ((1, "model_stats", "*ModelStatistics"),),
    "RepositoryIndexRequest": ((1, "repository_name", "string"), (2, "ready", "bool")),
    "ModelIndex": ((1, "name", "string"), (2, "version", "string"), (3, "state", "string"), (4, "reason", "string")),
    "RepositoryIndexResponse": ((1, "models", "*ModelIndex"),),
}
CLASSES = message_classes("highway_keras.open_inference", _MESSAGES, _ENUMS)
"""Class of each message, by its name."""
# Fields for `bulk_bytes`: raw tensors, and files in a tensor.
BULK = ((7,), (5, 5, 8))

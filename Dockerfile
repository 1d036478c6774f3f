# Three images from one repository:
#   docker build --target train -t highway-train .              all verbs; --build-arg ACCELERATOR=gpu for CUDA
#   docker build --target tf-serving -t highway-tf-serving .    TF Serving with its batching and monitoring
#   docker build --target endpoint -t highway-endpoint .        `highway serve`, without TensorFlow and Keras
# `make images` builds them with labels for version and commit. The base images are arguments, to be had from a mirror,
# and pinned by digest; this finds a newer one:
#   docker buildx imagetools inspect python:3.13-slim --format '{{.Manifest.Digest}}'
# The digest is that of python:3.13.15-slim, as public builds recorded it in September 2026. No registry could be reached
# where this file was tested: images were built on a stand-in, and the digest of tensorflow/serving is still to be added.
ARG PYTHON_IMAGE=python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
ARG TF_SERVING_IMAGE=tensorflow/serving:2.21.0

FROM ${PYTHON_IMAGE} AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
# The environment needs no pip of its own: the image's pip installs into it.
RUN python -m venv --without-pip /opt/highway
# Lists the Python packages of an environment with versions and licences (CycloneDX).
COPY requirements/sbom.lock sbom.lock
RUN python -m venv /opt/sbom && /opt/sbom/bin/pip install --require-hashes --requirement sbom.lock

FROM packages AS train-packages
ARG ACCELERATOR=cpu
# With JAX, Ray and buckets, for training on several machines.
COPY requirements/${ACCELERATOR}.lock requirements/cluster.lock ./
RUN pip --python /opt/highway/bin/python install --require-hashes --requirement ${ACCELERATOR}.lock --requirement cluster.lock
COPY . .
RUN pip --python /opt/highway/bin/python install --no-deps . && \
    /opt/sbom/bin/cyclonedx-py environment --output-reproducible --output-file /opt/highway/sbom.cdx.json /opt/highway/bin/python

FROM packages AS endpoint-packages
COPY requirements/serving.lock requirements.lock
RUN pip --python /opt/highway/bin/python install --require-hashes --requirement requirements.lock
COPY . .
# Leaves out Keras, which only the library needs, and removes tests of packages, ONNX Runtime's model-making tools, and
# what botocore knows of Amazon's services but for S3 and those that give credentials, whose names start with s too.
RUN pip --python /opt/highway/bin/python install --no-deps . && \
    find /opt/highway/lib -type d \( -name tests -o -path '*/onnxruntime/transformers' -o -path '*/onnxruntime/tools' \
    -o -path '*/onnxruntime/quantization' -o -path '*/onnxruntime/datasets' -o -path '*/botocore/data/[!s]*' \) -prune -exec rm -r {} + && \
    /opt/sbom/bin/cyclonedx-py environment --output-reproducible --output-file /opt/highway/sbom.cdx.json /opt/highway/bin/python

FROM ${PYTHON_IMAGE} AS train
RUN useradd --create-home --uid 10001 highway && install --directory --owner 10001 /work /data
COPY --from=train-packages /opt/highway /opt/highway
ENV PATH=/opt/highway/bin:$PATH TFDS_DATA_DIR=/data MPLCONFIGDIR=/tmp/matplotlib
USER 10001
# Runs and models are written here: mount a folder that user 10001 may write to.
WORKDIR /work
ENTRYPOINT ["highway"]
CMD ["--help"]
ARG PYTHON_IMAGE VERSION REVISION CREATED
LABEL org.opencontainers.image.title="highway-train" \
    org.opencontainers.image.description="Trains, evaluates, exports and serves highway networks on Keras 3" \
    org.opencontainers.image.licenses="Apache-2.0" org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
    org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.created="${CREATED}"

# TF Serving reads SavedModels of its own TensorFlow version and older; exports use 2.21. tensorflow-serving-api 2.21.0
# is on PyPI and is released together with this image; 2.20.0 certainly exists. The image could not be pulled where this
# file was tested: tests/tf_serving_double.py stood in for it, with the real messages and the same configuration. Running
# it as another user on a read-only file system is untested.
FROM ${TF_SERVING_IMAGE} AS tf-serving
COPY serving/tf_serving/batching.config serving/tf_serving/monitoring.config /etc/tf_serving/
USER 10001
# gRPC and REST.
EXPOSE 8500 8501
# The image has neither curl nor Python.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8501"]
# Mount models at /models, with the models.config that `highway release` writes there, or add them:
#   FROM highway-tf-serving
#   COPY models /models
CMD ["--model_config_file=/models/models.config", "--model_config_file_poll_wait_seconds=5", \
     "--allow_version_labels_for_unavailable_models=true", \
     "--enable_batching=true", "--batching_parameters_file=/etc/tf_serving/batching.config", \
     "--monitoring_config_file=/etc/tf_serving/monitoring.config"]
ARG TF_SERVING_IMAGE VERSION REVISION CREATED
LABEL org.opencontainers.image.title="highway-tf-serving" \
    org.opencontainers.image.description="TensorFlow Serving, configured for exported highway networks" \
    org.opencontainers.image.licenses="Apache-2.0" org.opencontainers.image.base.name="${TF_SERVING_IMAGE}" \
    org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.created="${CREATED}"

FROM ${PYTHON_IMAGE} AS endpoint
RUN useradd --no-create-home --uid 10001 highway
COPY --from=endpoint-packages /opt/highway /opt/highway
ENV PATH=/opt/highway/bin:$PATH PYTHONDONTWRITEBYTECODE=1 ORT_DISABLE_TELEMETRY=1 XDG_CACHE_HOME=/tmp/cache
USER 10001
EXPOSE 8501
# By the shell: a Python would take more processor time than most predictions. Address and port are the last that the
# command of the container names; Linux reaches itself by 0.0.0.0 and :: as well.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["bash", "-c", \
    "mapfile -t -d '' words </proc/1/cmdline; \
    [[ \"${words[*]}\" =~ .*\\ --host[=\\ ]([^\\ ]+) ]]; host=${BASH_REMATCH[1]:-127.0.0.1}; \
    [[ \"${words[*]}\" =~ .*\\ --port[=\\ ]([0-9]+) ]]; port=${BASH_REMATCH[1]:-8501}; \
    exec 3<>/dev/tcp/$host/$port; printf 'GET /v2/health/live HTTP/1.0\\r\\n\\r\\n' >&3; read -r _ status _ <&3; [ \"$status\" = 200 ]"]
# Runs on a read-only file system with a writable /tmp, for the shared metrics of --workers, and for the copy of a bucket.
# For a bucket: --entrypoint highway, and as arguments serve s3://BUCKET/models --host 0.0.0.0 --origins none.
# Access must be configured at deployment: set HIGHWAY_API_KEY, or add --key-file FILE or --key none. Another --origins
# replaces this one.
ENTRYPOINT ["highway", "serve", "/models", "--host", "0.0.0.0", "--origins", "none"]
CMD []
ARG PYTHON_IMAGE VERSION REVISION CREATED
LABEL org.opencontainers.image.title="highway-endpoint" \
    org.opencontainers.image.description="Serves exported highway networks over HTTP" \
    org.opencontainers.image.licenses="Apache-2.0" org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
    org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.created="${CREATED}"

# The commands of the project. `make demo` and `make test` need Python 3.11 to 3.13, make and access to PyPI.
PYTHON ?= python3
# cpu, or gpu for TensorFlow with CUDA.
ACCELERATOR ?= cpu
BIN := .venv/bin
INSTALLED := .venv/installed-$(ACCELERATOR)
INSTALLED_DEV := .venv/installed-dev-$(ACCELERATOR)
PIP_INSTALL := bin/pip install --quiet --disable-pip-version-check

# Two recipes: create an empty environment, and install packages into it. uv takes a fraction of pip's time but ignores
# the mirrors that pip is configured with, so pip takes over where uv fails.
new_environment = @$(PYTHON) -m venv --clear $(1) && $(1)/$(PIP_INSTALL) --require-hashes --requirement requirements/uv.lock
install_into = @$(1)/bin/uv pip install --quiet --python $(1)/bin/python $(2) || $(1)/$(PIP_INSTALL) $(2)

.PHONY: help install install-dev demo test test-all test-tensorflow test-unit test-integration test-jax test-torch test-oldest lint format docs peers servers bench images lock clean

help:  ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

install: $(INSTALLED)  ## Create .venv with what the program needs, as locked

$(INSTALLED): requirements/uv.lock requirements/$(ACCELERATOR).lock setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if (3, 11) <= v < (3, 14) else \
	    f"Python 3.11 to 3.13 is needed, $(PYTHON) is {v.major}.{v.minor}: name another with make PYTHON=python3.12")'
	@echo "Installing the locked dependencies into .venv: 2.2 GB on disk, most of it TensorFlow."
	$(call new_environment,.venv)
	$(call install_into,.venv,--require-hashes --requirement requirements/$(ACCELERATOR).lock)
	$(call install_into,.venv,--no-deps --no-build-isolation --editable .)
	@touch $@

install-dev: $(INSTALLED_DEV)  ## Add what tests and checks need: JAX, Ray, pytest, ruff, mypy and others

$(INSTALLED_DEV): $(INSTALLED) requirements/dev.lock requirements/stubs.txt
	$(call install_into,.venv,--require-hashes --requirement requirements/dev.lock)
	$(call install_into,.venv,--require-hashes --no-deps --requirement requirements/stubs.txt)
	@touch $@

demo: install  ## Train, evaluate, export and predict on 5,000 real digits
	@$(BIN)/python -m pipelines.verbs.demo

# Tests that JAX, the second backend, runs too: the library, and training that is killed and resumed. The longest tests
# come first, so that no worker is left alone with them at the end.
ON_JAX := tests/e2e/test_train_killed.py tests/integration/test_train_resume.py \
    tests/unit/pipelines/training/test_initialization.py tests/unit/pipelines/training/test_steps_per_execution.py \
    tests/unit/pipelines/training/test_data_parallel.py tests/unit/highway_keras
# Without bytecode, each worker of pytest and each process that tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# More workers than the two cores of small machines, because some tests wait for processes.
PYTEST := $(BIN)/python -m pytest -q -n 3 --dist worksteal
# .venv-peers has PyTorch but no TensorFlow: the library needs only Keras, NumPy and one backend.
# Threads of PyTorch that wait keep their cores busy, so each worker has one.
PYTEST_IN_PEERS := OMP_NUM_THREADS=1 .venv-peers/bin/python -m pytest -q -n 3 --dist worksteal

# Unit tests run apart, because programs that TensorFlow compiled stay in memory until a worker ends.
test: install-dev peers  ## Run the tests on every backend, short of the slow ones
	KERAS_BACKEND=tensorflow $(PYTEST) -m "not slow" tests/unit
	KERAS_BACKEND=tensorflow $(PYTEST) -m "not slow" tests/integration tests/e2e
	KERAS_BACKEND=jax $(PYTEST) -m "not slow" tests/unit/highway_keras
	KERAS_BACKEND=torch $(PYTEST_IN_PEERS) -m "not slow" tests/unit/highway_keras

test-all: test-tensorflow test-jax test-torch test-oldest  ## Run every test on every backend

test-tensorflow: test-unit test-integration

test-unit: install-dev
	KERAS_BACKEND=tensorflow $(PYTEST) tests/unit

test-integration: install-dev
	KERAS_BACKEND=tensorflow $(PYTEST) tests/integration tests/e2e

test-jax: install-dev
	KERAS_BACKEND=jax $(PYTEST) $(ON_JAX)

test-torch: install-dev peers
	KERAS_BACKEND=torch $(PYTEST_IN_PEERS) tests/unit/highway_keras

test-oldest: .venv-oldest/installed  ## Run the library's tests on the oldest Keras that it supports
	KERAS_BACKEND=jax .venv-oldest/bin/python -m pytest -q -n 3 --dist worksteal -m "not slow" \
	    tests/unit/highway_keras

lint: install-dev  ## Check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install-dev  ## Format the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: .venv-docs/installed  ## Build the site into site/; broken links fail
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

.venv-docs/installed: requirements/uv.lock requirements/docs.lock
	$(call new_environment,.venv-docs)
	$(call install_into,.venv-docs,--require-hashes --requirement requirements/docs.lock)
	@touch $@

peers: .venv-peers/installed  ## Create .venv-peers: PyTorch, for tests and benchmarks, and Flax

.venv-peers/installed: requirements/uv.lock requirements/peers.lock requirements/peers.torch.txt
	$(call new_environment,.venv-peers)
	$(call install_into,.venv-peers,--require-hashes --requirement requirements/peers.lock)
	@.venv-peers/$(PIP_INSTALL) --requirement requirements/peers.torch.txt
	@touch $@

.venv-oldest/installed: requirements/uv.lock requirements/oldest.lock
	$(call new_environment,.venv-oldest)
	$(call install_into,.venv-oldest,--require-hashes --requirement requirements/oldest.lock)
	@touch $@

servers: .venv-servers/installed  ## Create .venv-servers with the servers that the endpoint is compared with

.venv-servers/installed: requirements/uv.lock requirements/servers.lock requirements/peers.torch.txt
	$(call new_environment,.venv-servers)
	$(call install_into,.venv-servers,--require-hashes --requirement requirements/servers.lock)
	@.venv-servers/$(PIP_INSTALL) --requirement requirements/peers.torch.txt
	@touch $@

# Benchmarks and options, for example BENCH="dense conv"; BENCH=--list names them.
BENCH ?=

bench: install-dev peers  ## Compare this project with its peers
	@$(BIN)/python -m benchmarks $(BENCH)

# A program that builds images as Docker does.
CONTAINER ?= docker
IMAGES := train tf-serving endpoint

images: $(IMAGES:%=image-%)  ## Build the container images, labelled with version and commit

image-%:
	$(CONTAINER) build --target $* --tag highway-$* --build-arg REVISION=$$(git rev-parse HEAD) \
	    --build-arg VERSION=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' highway_keras/version.py) \
	    --build-arg CREATED=$$(git log -1 --format=%cI) .

COMPILE := $(BIN)/uv pip compile --generate-hashes --no-emit-index-url --upgrade --quiet --custom-compile-command "make lock"
UNIVERSAL := --universal --python-version 3.11
# The same versions as in .venv, where both have a package.
AS_INSTALLED := $(UNIVERSAL) --constraint requirements/cpu.lock --constraint requirements/dev.lock

lock: install-dev  ## Resolve the dependencies anew
	$(COMPILE) $(UNIVERSAL) setup.cfg --extra cpu --output-file requirements/cpu.lock
	$(COMPILE) $(UNIVERSAL) --constraint requirements/cpu.lock setup.cfg --extra gpu --output-file requirements/gpu.lock
	$(COMPILE) $(UNIVERSAL) --constraint requirements/cpu.lock setup.cfg --extra jax --extra dev --output-file requirements/dev.lock
	$(COMPILE) $(AS_INSTALLED) setup.cfg --extra jax --extra cluster --extra s3 --extra gs --output-file requirements/cluster.lock
	echo 'ray[default]' | $(COMPILE) $(AS_INSTALLED) --constraint requirements/cluster.lock - --output-file requirements/kuberay.lock
	$(COMPILE) $(AS_INSTALLED) requirements/serving.in requirements/tracing.in requirements/buckets.in \
	    --output-file requirements/serving.lock
	$(COMPILE) $(AS_INSTALLED) requirements/docs.in --output-file requirements/docs.lock
	$(COMPILE) $(AS_INSTALLED) requirements/peers.in --output-file requirements/peers.lock
	$(COMPILE) $(UNIVERSAL) requirements/oldest.in --output-file requirements/oldest.lock
	echo uv | $(COMPILE) $(AS_INSTALLED) - --output-file requirements/uv.lock
	$(COMPILE) $(UNIVERSAL) requirements/servers.in --output-file requirements/servers.lock
	echo cyclonedx-bom | $(COMPILE) --universal --python-version 3.13 - --output-file requirements/sbom.lock

clean:  ## Remove environments, caches and the site; runs, models and data stay
	rm -rf .venv .venv-docs .venv-oldest .venv-peers .venv-servers site .mypy_cache .ruff_cache .hypothesis build *.egg-info

# Everything a contributor runs; `make` lists it.

PYTHON ?= python3
# A virtual environment for each Python: .venv for python3, .venv-python3.13 and so on for others.
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# Tests start hundreds of Python processes: without bytecode each one compiles for half a second.
unexport PYTHONDONTWRITEBYTECODE
# Tests wait more than they compute, so there are three workers for a processor; each has a
# control plane of its own, of about 400 MB.
WORKERS ?= $(shell n=$$(( 3 * $$(nproc 2>/dev/null || echo 2) )); echo $$(( n < 8 ? n : 8 )))
# Modules stay together and begin longest first (`tests/order.py`).
CROWD = --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# The tests on a real OpenStack are a stage: two runs would share its projects and quotas.
CHOSEN = -m 'not long' --ignore-glob='*/test_real*.py'
INNER = $(CHOSEN) $(CROWD)
# What other clones of this repository need as well, such as what mypy knows of unchanged files.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/proreus
# What needs no control plane.
QUICK := tests/plans tests/properties tests/cloudprovider tests/controllers tests/kube tests/test_shape.py
# The image: what builds it, what it stands on, what it is called.
BUILDER ?= docker
BASE ?= python:3.13-slim
TAG ?= proreus
OLDEST := $(shell sed -n 's/^OLDEST_VERSION = "\(.*\)"$$/\1/p' src/proreus/testing/controlplane/assets.py)
ON_OLDEST := env -u KUBEBUILDER_ASSETS PROREUS_KUBERNETES_VERSION=$(OLDEST)

# The clouds with one long stage each; those of aws, gce and openstack have more.
CLOUDS := azure baidu cloudstack mesos ovirt photon rackspace rancher vsphere

.DEFAULT_GOAL := help
.PHONY: help venv assets demo test test-all test-quick checks programs lint types contracts docs plans collection pytest durations mutation clean gotools manifests image image-base bench bench-local assets-oldest test-oldest test-faults test-aws test-gce test-openstack test-CLOUD $(CLOUDS:%=test-%) cluster-up cluster-down openstack-up openstack-down e2e test-cluster

help: ## List the targets
	@awk -F ':.*## ' '/^[a-zA-Z0-9-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Make .venv with Proreus and the tools of its development

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'error: `$(PYTHON)` is missing or older than Python 3.11; name another with `make PYTHON=python3.13 venv`' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'error: `$(PYTHON)` cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	@echo '== venv: installing into $(VENV) (a few seconds with uv and a warm cache, a minute with pip)'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) uv && VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet -c constraints.txt -e '.[dev]' || { \
		echo '== venv: uv cannot, so with pip'; $(PIP) -e '.[dev]'; }
	@touch $(STAMP)

assets: $(STAMP) ## Get etcd and kube-apiserver, for tests and the demo
	@echo '== assets'
	@$(BIN)/python -m proreus.testing.controlplane --download-only

gotools: $(STAMP)
	@echo '== gotools'
	@if command -v go >/dev/null; then $(BIN)/python tools/manifests.py programs >/dev/null; \
		else echo 'no Go on the PATH: the tests of charts and rules are skipped'; fi

manifests: $(STAMP) ## Make the chart's roles, its README, deploy/*.yaml and the IAM policy anew
	@echo '== manifests'
	@$(BIN)/python tools/manifests.py write

image: ## Build the container image (BUILDER=docker, BASE=…, TAG=…, ARGS=…)
	$(BUILDER) build --build-arg BASE=$(BASE) --tag $(TAG) $(ARGS) .

image-base: ## Make a base image of Debian's packages, without a registry; needs root, buildah, mmdebstrap
	@echo '== image-base: localhost/python'
	@mkdir -p build
	@mmdebstrap --quiet --variant=minbase --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
		--include=ca-certificates,python3,python3-venv,usr-is-merged \
		--dpkgopt=path-exclude=/usr/share/doc/* --dpkgopt=path-exclude=/usr/share/man/* \
		--dpkgopt=path-exclude=/usr/share/locale/* bookworm build/base.tar
	@made=$$(buildah from scratch) && buildah add --quiet $$made build/base.tar / && \
		buildah commit --quiet --rm $$made localhost/python

demo: $(STAMP) ## Show Proreus at work on a real API server and a simulated cloud (PROVIDER=local: on a real cluster; ARGS=…)
	@$(BIN)/$(if $(filter local,$(PROVIDER)),python -m labs.cluster,proreus) demo $(ARGS)

test: $(STAMP) ## Run the inner ring: style, types, contracts, docs, tests but the long ones
	@echo '== test: nine to ten minutes on two processors; the first time on a machine ten more,'
	@echo '   to build etcd, kube-apiserver and the programs of charts with Go where they cannot be downloaded'
	@$(MAKE) --no-print-directory -j2 programs checks
	@$(MAKE) --no-print-directory pytest

test-all: test ## Run the outer ring too: every stage of tools/stages.py (hours; ARGS=--list shows them)
	@$(BIN)/python tools/stages.py $(ARGS)

test-quick: $(STAMP) ## Run what needs no control plane and ends in two minutes, such as with another PYTHON
	@echo '== test-quick: $(shell $(BIN)/python -V 2>&1)'
	@$(BIN)/pytest -q $(QUICK) $(INNER)

programs: assets gotools

# The longest first, since two run at a time.
checks: plans lint types contracts docs collection

lint: $(STAMP) ## Check style and format
	@echo '== lint'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP) ## Check types
	@echo '== types'
	@$(BIN)/mypy --cache-dir $(CACHE)/mypy

contracts: $(STAMP) ## Check which package may import which
	@echo '== contracts'
	@$(BIN)/lint-imports

plans: $(STAMP) ## Run the tables of decisions; alone they must cover every branch of every plan.py
	@echo '== plans'
	@$(BIN)/pytest -q tests/plans --cov --cov-report=
	@echo '== coverage of decisions (plan.py)'
	@$(BIN)/coverage report --include='*/plan.py' --show-missing --fail-under=100

# Each worker imports all tests. Compiled once, that takes them a third of the time.
collection: $(STAMP) ## Find the other tests, and compile them
	@echo '== collection'
	@$(BIN)/pytest --collect-only -q --ignore=tests/plans $(CHOSEN) | tail -1

# Their control planes live for minutes: a larger heap costs less than its collection.
pytest: assets gotools ## Run the other tests of the inner ring
	@echo '== pytest'
	@GOGC=$${GOGC:-400} $(BIN)/python tools/attempt.py --ignore=tests/plans $(INNER) $(ARGS)

durations: assets gotools ## Record how long each file of tests takes, which orders them
	@$(BIN)/pytest --ignore=tests/plans $(INNER) --record-durations

docs: $(STAMP) ## Build the documentation into docs/_build; warnings are errors
	@echo '== docs'
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --builder dirhtml docs docs/_build

assets-oldest: $(STAMP)
	@$(ON_OLDEST) $(BIN)/python -m proreus.testing.controlplane --download-only

test-oldest: assets-oldest ## Run the tests on a real API server with the oldest Kubernetes
	@echo '== test-oldest: Kubernetes $(OLDEST)'
	@$(ON_OLDEST) $(BIN)/python tools/attempt.py tests/apiserver $(INNER)

test-faults: assets ## Try every fault at every boundary, long histories, all scripts beside Go
	@$(BIN)/python tools/stages.py kills faults properties parity

test-aws: assets ## Try the provider aws at length, and beside the official one; needs Go
	@$(BIN)/python tools/stages.py aws aws-official

test-gce: assets ## Try the provider gce at length, and beside the official one; needs Go
	@$(BIN)/python tools/stages.py gce gce-official

test-CLOUD: ## Try the provider of a cloud at length, with the official one or SDKs beside it, as `make test-azure`; needs Go
	@echo 'CLOUD is one of $(CLOUDS)' && false

$(CLOUDS:%=test-%): test-%: assets
	@$(BIN)/python tools/stages.py $*

test-openstack: assets ## Try the provider openstack on a real OpenStack, and beside the official one; needs Go
	@$(BIN)/python tools/stages.py openstack openstack-life openstack-official

cluster-up: $(STAMP) ## Make a real cluster in namespaces of this machine; needs root, Go (ARGS=--nodes=3)
	@echo '== cluster-up (building its programs takes ten minutes the first time)'
	@$(BIN)/python -m labs.cluster up $(ARGS)

cluster-down: $(STAMP) ## Remove that cluster, whatever its state
	@echo '== cluster-down'
	@$(BIN)/python -m labs.cluster down

openstack-up: $(STAMP) ## Start a real OpenStack on this machine; Debian 12 only (1 GB on disk)
	@echo '== openstack-up'
	@$(BIN)/python -m labs.openstack up $(ARGS)

openstack-down: $(STAMP) ## Stop that OpenStack, and forget what it has kept
	@echo '== openstack-down'
	@$(BIN)/python -m labs.openstack down

e2e: $(STAMP) ## Run Kubernetes' own specs of load balancers on that cluster (ARGS=--specs=services, ARGS=--chaos)
	@echo '== e2e'
	@$(if $(findstring --chaos,$(ARGS)),,$(BIN)/python -m labs.cluster up --if-absent)
	@$(BIN)/python -m labs.cluster.e2e $(ARGS)

test-cluster: $(STAMP) ## Run the tests on real clusters, without Kubernetes' own specs (IMAGE=image.tar: pods of that image)
	@echo '== test-cluster'
	@$(if $(IMAGE),PROREUS_IMAGE=$(abspath $(IMAGE)) )$(BIN)/pytest -v tests/cluster

bench: assets ## Compare with a manager of the Go framework; needs Go (ARGS=--quick)
	@echo '== bench'
	@$(BIN)/python -m benchmarks $(ARGS)

bench-local: $(STAMP) ## Measure the data path of the provider local; needs what cluster-up needs (ARGS=…)
	@echo '== bench-local'
	@$(BIN)/python -m benchmarks.local $(ARGS)

mutation: $(STAMP) ## Check that the tests notice changed decisions (slow)
	@echo '== mutation'
	@$(BIN)/python tools/mutation.py $(ARGS)

clean: ## Remove what the other targets made here; the cached control plane stays
	rm -rf docs/_build docs/reference/generated .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* mutants dist build
	find src tests tools labs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

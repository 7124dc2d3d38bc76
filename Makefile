# Two targets are all that a newcomer needs: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.13 || command -v python3.12 || command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test check quick bench clean

help: ## what can be made
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ampsq needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; say make PYTHON=/path/to/python3.11")'
	@echo "making $(VENV) with $(PYTHON) and installing ampsq into it"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

install: $(STAMP) ## make .venv with ampsq and its tools

demo: $(STAMP) ## the main job on 27,004 real flights; ARGS=--json for one line
	@$(BIN)/ampsq demo $(ARGS)

test: $(STAMP) check ## everything that must hold; ARGS for pytest
	$(BIN)/python -m pytest $(ARGS)

check: $(STAMP) ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict -p ampsq

quick: $(STAMP) ## the tests without the slow ones
	$(BIN)/python -m pytest -m 'not slow' $(ARGS)

bench: $(STAMP) ## ampsq beside raw Redis Streams
	@$(BIN)/ampsq bench $(ARGS)

clean: ## remove what was made here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis

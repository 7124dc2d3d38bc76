# Two targets are all that a newcomer needs: `make demo` and `make test`.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
# Processes that share the tests: four more than cores, since most tests wait (of a second, a quarter is work); JOBS=0 for
# none beside pytest's own.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 4)
# What the many processes of the tests import is compiled once, also where others keep nothing.
unexport PYTHONDONTWRITEBYTECODE
STAMP := $(VENV)/.installed
TOOLS := $(VENV)/.tools
# Folders or files whose tests `make roles` runs, and those of them that `make test-all` does.
ROLES ?= $(addprefix tests/,queues publishing topics records views catalog client operations tracing lua replication faults cli \
	$(patsubst %,coordinator/test_%.py,actions action_recipes action_triggers foreign_entries) gateway/test_gateway.py gateway/test_gateway_writing.py)
ROLES_IN_ALL := tests/replication/test_running.py tests/operations/test_check.py \
	$(patsubst %,tests/queues/test_%.py,acknowledging at_most_once history letters message_flow redrive returning subscribing) \
	$(patsubst %,tests/coordinator/test_%.py,actions foreign_entries) \
	$(patsubst %,tests/topics/test_%.py,conflated_topics durable_subscriptions retention) \
	$(patsubst %,tests/publishing/test_%.py,guaranteed_names guaranteed_publishing publishers publishing) \
	$(patsubst %,tests/records/test_%.py,record_subscriptions sow) \
	$(patsubst %,tests/views/test_%.py,view_publishing views)
# What `make compare` measures: revisions, or folders of checkouts.
OLD ?= HEAD~1
NEW ?= HEAD
# Which campaigns of faults, and how many of them; SECONDS says for how long each, or a soak.
SEED ?= 1
RUNS ?= 100
UNDER_ROLES = PYTHONPATH=tests $(BIN)/python -m pytest -p under_roles -n $(JOBS) --dist worksteal
# Where a run of the tests notes what it called.
SEEN := $(CURDIR)/$(VENV)/seen
# Runs tests: $(1) says which, $(2) with what in the environment, $(3) with which plugin, $(4) names targets that are made
# beside them. Those of Spark are a process beside the others. Where ARGS choose tests, one of both may have none (5).
define run_tests
	@echo "$(if $(4),$(4) and )the tests of Spark run beside the others; what they say comes at the end"
	@trap 'kill $$spark $$beside 2>/dev/null' EXIT INT TERM; \
	$(if $(4),$(MAKE) --no-print-directory,true) $(4) >$(VENV)/beside.log 2>&1 & beside=$$!; \
	$(2) $(BIN)/python -m pytest -o addopts='-q --strict-markers' -o cache_dir=$(VENV)/failed-spark $(3) -n 0 $(1) tests/spark $(ARGS) >$(VENV)/spark.log 2>&1 & spark=$$!; \
	$(2) $(BIN)/python -m pytest -o addopts='-q --strict-markers' -o cache_dir=$(VENV)/failed $(3) -n $(JOBS) --dist worksteal $(1) --ignore tests/spark $(ARGS); others=$$?; \
	wait $$spark; code=$$?; cat $(VENV)/spark.log; \
	wait $$beside; said=$$?; cat $(VENV)/beside.log; [ $$said -eq 0 ] || exit $$said; \
	case "$$others $$code $(if $(ARGS),chosen)" in "5 0 chosen"|"0 5 chosen") exit 0;; esac; \
	[ $$others -eq 0 ] && exit $$code; exit $$others
endef

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-rest test-slow test-roles test-soak test-again check lint types roles soak dist matrix bench compare size campaign nightly clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "ampsq needs Python 3.11 or newer with venv; say make PYTHON=/path/to/python3"; exit 1; }
	@echo "making $(VENV) with $(PYTHON) and installing ampsq into it"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[cli,embedded,msgpack]'
	@touch $(STAMP)

# Spark is large, and what runs the demo does without. What pytest makes of the tests' text is made once, as pip compiles what
# it installs: else each of the processes that share the tests makes it. What cannot be collected fails where tests are run.
$(TOOLS): $(STAMP)
	@echo "installing the tools and Spark"
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -c 'import ampsq.spark; ampsq.spark.ensure_java()' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[java]'
	@$(BIN)/python -m pytest -n 0 --collect-only --ignore tests/spark >/dev/null || true
	@touch $(TOOLS)

install: $(TOOLS) ## make .venv with ampsq and its tools

demo: $(STAMP) ## the main job on 27,004 real flights; ARGS=--json for one line
	@$(BIN)/ampsq demo $(ARGS)

test: $(TOOLS) lint ## every room, verb, command and script, for who waits for it; ARGS for pytest
	@rm -rf "$(SEEN)"
	$(call run_tests,-m 'not slow',AMPSQ_SEEN="$(SEEN)" PYTHONPATH=tests,-p calls_seen,types)
	@echo "and whether that left out anything"
	@AMPSQ_SEEN="$(SEEN)" PYTHONPATH=tests $(BIN)/python -m pytest -n 0 -rs tests/house/test_short_run.py

test-all: test ## that, the slow tests and those under roles: everything that must hold
	@$(MAKE) --no-print-directory test-rest

test-rest: test-slow test-roles test-soak ## what test-all has and test has not

test-slow: $(TOOLS) ## the slow tests
	$(call run_tests,-m slow)

test-roles: $(TOOLS) ## a part of all tests under users of roles alone
	@$(UNDER_ROLES) $(ROLES_IN_ALL) $(ARGS)

test-soak: $(TOOLS) ## five minutes of the soak
	@$(BIN)/python tests/soak/soak.py --seconds 300

test-again: $(TOOLS) ## what failed in the last run, each alone; fails where nothing did
	$(BIN)/python -m pytest -o addopts='-q --strict-markers' -o cache_dir=$(VENV)/failed -n 0 --last-failed --last-failed-no-failures none

check: lint types ## format, lint and types

lint: $(TOOLS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# What mypy knows of the last run stays, so that the next one looks at what changed; the copy is made anew.
types: $(TOOLS)
	@rm -rf $(VENV)/types && mkdir -p $(VENV)/types
	@cp -rp ampsq $(VENV)/types/ampsq && cp -rp bench $(VENV)/types/ampsq/bench && cp -rp cli $(VENV)/types/ampsq/cli && cp -rp spark $(VENV)/types/ampsq/spark && cp -rp lua $(VENV)/types/ampsq/lua
	cd $(VENV)/types && ../bin/mypy --cache-dir ../mypy --config-file ../../pyproject.toml -p ampsq
	cd $(VENV)/types && MYPYPATH=../../examples ../bin/mypy --cache-dir ../mypy --config-file ../../pyproject.toml ../../examples/*.py

roles: $(TOOLS) ## tests where servers let in users of roles alone; ROLES names files
	$(UNDER_ROLES) $(ROLES) $(ARGS)

soak: $(TOOLS) ## everything at once, with kills, for two hours; SECONDS=300 for less, ARGS='--seed 2'
	@$(BIN)/python tests/soak/soak.py --seconds $(or $(SECONDS),7200) $(ARGS)

dist: $(TOOLS) ## dist/: wheel, sdist and SBOM of the last commit, checked in clean environments; needs a package index
	@$(BIN)/python tests/releasing.py build
	@$(BIN)/python tests/releasing.py check

matrix: $(TOOLS) ## a short set of tests with each Python and server that can be had; writes docs/measured/matrix.json
	@$(BIN)/python tests/matrix.py $(ARGS)

bench: $(STAMP) ## ampsq beside raw Redis Streams
	@$(BIN)/ampsq bench $(ARGS)

compare: $(STAMP) ## OLD and NEW measured in turn; ARGS='--part raw --rounds 9'
	@$(BIN)/python -m ampsq.bench.compare $(OLD) $(NEW) $(ARGS)

size: $(STAMP) ## what one node carries: 20 million messages; ARGS='--messages 2000000 --waiting 500000'
	@$(BIN)/python -m ampsq.bench.size $(ARGS)

campaign: $(TOOLS) ## faults of every kind for SECONDS=60, chosen by SEED=1, and a judge; ARGS=--plan
	@$(BIN)/python tests/faults/campaign.py --seed $(SEED) --seconds $(or $(SECONDS),60) $(ARGS)

nightly: $(TOOLS) ## RUNS=100 campaigns of SECONDS=60, seeds from SEED=1 on, and their table in build/nightly.md
	@$(BIN)/python tests/faults/nightly.py --first $(SEED) --runs $(RUNS) --seconds $(or $(SECONDS),60) $(ARGS)

clean: ## remove what was made here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis

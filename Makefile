# Needs Python 3.11 or newer (with venv), make and git. Everything else goes into .venv.
# Options for the program behind a target: make demo ARGS="--answers 1,Reject"

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-harness fuzz crash rounds chaos lint types layers check bench lock clean
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input install --quiet
ARGS ?=
# Processes that share the tests; 0 runs them in one, where a debugger can be used.
WORKERS ?= 2
# In Python's development mode: no resource left open, no task forgotten.
TEST := $(PY) -X dev -m pytest
SHARED := $(if $(filter-out 0,$(WORKERS)),--dist loadfile --tx "$(WORKERS)*popen//python=$(PY) -X dev")

# Each stamp says that a lock is installed; it is older than the lock once the lock changes.
DEV := $(VENV)/.installed-dev
DEMO := $(VENV)/.installed-demo
# the development locks hold all that the demo needs, too
FOR_DEMO := $(if $(wildcard $(DEV)),$(DEV),$(DEMO))

CANDIDATES := $(PYTHON) python3.11 python3 python3.12 python3.13 python3.14
FITS := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 21

venv: $(DEV) ## Make .venv with everything for development

demo: $(FOR_DEMO) ## See it work on a private homeserver (ARGS="--answers 1,Reject")
	@$(PY) -m agentpod_bot demo $(ARGS)

test: $(DEV) ## Run all tests (ARGS="-k name")
	@$(TEST) $(SHARED) $(ARGS)

test-harness: $(DEV) ## Run the tests with the real harness programs (npm, 1.3 GB)
	@$(PY) -m tests.harness.programs
	@$(PY) -m pytest -m harness tests/harness $(ARGS)

fuzz: $(DEV) ## Try the properties with new examples (ARGS="--minutes 5")
	@$(PY) -m pytest -p tests.fuzzing -m hypothesis -o timeout=0 $(ARGS)

crash: $(DEV) ## Kill the daemon at every await of asking and answering (about 8 minutes)
	@CRASH=all $(PY) -m pytest tests/crash tests/integration/test_crash_synapse.py $(ARGS)

rounds: $(DEV) ## Ask 200 times in an encrypted room, with new keys and changing devices (about a minute)
	@ENCRYPTED_ROUNDS=200 $(PY) -m pytest tests/integration/test_encrypted.py -k many_rounds $(ARGS)

lint: $(DEV) ## Check style and formatting
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: $(DEV) ## Check types
	@$(PY) -m mypy

layers: $(DEV) ## Check that imports point down only
	@$(VENV)/bin/lint-imports

check: lint types layers test ## Run all of these

bench: $(DEV) ## Measure ask to answer on the private homeserver (ARGS="--encrypted")
	@$(PY) benchmarks/round_trip.py $(ARGS)

chaos: $(DEV) ## Kill, cut and mislead for five minutes, then check (ARGS="--minutes 60", "--encrypted")
	@$(PY) chaos/run.py $(ARGS)

# The smaller locks are held to the versions of the larger. Hashes stand in them, addresses do not.
# Only what comes ready-made is locked: nothing is built, and no set-up code runs, where it is installed.
COMPILE = $(VENV)/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-annotate --no-header --only-binary :all:
lock: $(PY) ## Renew the lock files (ARGS=--upgrade)
	@$(PIP) uv
	@$(COMPILE) --extra bridges --extra demo --extra dev --extra e2e --output-file requirements-dev.lock $(ARGS)
	@$(COMPILE) --extra bridges --constraints requirements-dev.lock --output-file requirements-bridges.lock $(ARGS)
	@$(COMPILE) --extra demo --extra e2e --constraints requirements-dev.lock --output-file requirements-demo.lock $(ARGS)
	@$(COMPILE) --extra e2e --constraints requirements-dev.lock --output-file requirements-e2e.lock $(ARGS)
	@$(COMPILE) --constraints requirements-dev.lock --output-file requirements.lock $(ARGS)
	@$(subst pip compile pyproject.toml,pip compile --group build,$(COMPILE)) \
		--constraints requirements-dev.lock --output-file requirements-build.lock $(ARGS)

clean: ## Remove .venv and every cache
	@rm -rf $(VENV) .harness dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@for candidate in $(CANDIDATES); do \
	    if $$candidate -c '$(FITS)' 2>/dev/null; then \
	        echo "Making $(VENV) with $$($$candidate --version)"; \
	        exec $$candidate -m venv --clear $(VENV); \
	    fi; \
	done; \
	echo "No Python 3.11 or newer with the venv module was found (tried: $(CANDIDATES))." >&2; \
	echo "Install one (on Debian and Ubuntu: python3 and python3-venv), or name it: make PYTHON=/path/to/python3" >&2; \
	exit 1

$(DEV): requirements-dev.lock requirements-build.lock pyproject.toml | $(PY)
	@echo "Installing what development needs (about a minute, once)"
	@$(PIP) --require-hashes -r requirements-dev.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEMO): requirements-demo.lock requirements-build.lock pyproject.toml | $(PY)
	@echo "Installing what the demo needs (about a minute, once)"
	@$(PIP) --require-hashes -r requirements-demo.lock -r requirements-build.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

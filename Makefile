# Everything a fresh machine needs: Python 3.11+ with venv, and make.
PYTHON ?= python3
# processes that share the tests
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup setup-dev serve test test-versions lint check lock clean

setup: $(VENV)/.run
setup-dev: $(VENV)/.dev

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "wordwire needs Python 3.11 or newer; name one with: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# what it takes to serve: the service, the engine, Whisper base
$(VENV)/.run: requirements.lock pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

# and what it takes to test: the reference model, the vendors' clients, the linters
$(VENV)/.dev: requirements-dev.lock $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	@touch $@

serve: setup
	$(BIN)/wordwire serve

# most tests wait for a socket or a clock; each process loads models of its own
test: setup-dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

# the lowest and the newest versions that pyproject.toml allows, each in an environment of its own
test-versions: $(VENV)/bin/python
	$(BIN)/python tests/packages/versions.py

lint: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/deptry .

check: lint test

# resolve the pins anew, in an environment of their own
lock:
	bash lock.sh

clean:
	rm -rf $(VENV) build *.egg-info

# Every target sets up the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTED := $(VENV)/.tested
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps

.PHONY: setup demo serve test test-slow live check docs bench bench-serve bench-ingest soak fuzz lock

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("taut needs Python 3.11 or newer, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@echo "installing taut and its libraries into $(VENV): some minutes"
	$(INSTALL) --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	touch $(READY)

# What only checks and tests need.
$(TESTED): $(READY) tests/requirements.lock
	@echo "installing the tools of the tests into $(VENV): some minutes"
	$(INSTALL) --requirement tests/requirements.lock
	touch $(TESTED)

setup: $(READY)

demo: $(READY)
	$(BIN)/taut demo

# Serve the models next to the lake (after `make demo`: the demo's); settings are TAUT_SERVE_*.
serve: $(READY)
	$(BIN)/taut serve

# Python processes share compiled modules, whatever the caller's environment says.
test test-slow: export PYTHONDONTWRITEBYTECODE =
test: $(TESTED)
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal

# Run what `make test` leaves out, and its property tests with all their examples; a file's tests share one process.
test-slow: $(TESTED)
	$(BIN)/python -m pytest -m "slow or hypothesis" -n 2 --dist loadfile

# Bring whole clusters up; what needs a program that is not here is skipped with the command that gets it. The week of a
# site runs 2,000 jobs on a real Slurm in about 45 minutes (TAUT_LIVE_JOBS=420 TAUT_LIVE_DAYS=2 for less).
live: $(TESTED)
	$(BIN)/python -m pytest -m live -s tests/live

check: $(TESTED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Build the documentation as a site in build/site; fails on a link to nothing. Its tools have an environment of their own.
docs: export NO_MKDOCS_2_WARNING = 1
docs:
	$(PYTHON) -m venv build/docs-venv
	build/docs-venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement docs/requirements.lock
	build/docs-venv/bin/mkdocs build --quiet --strict

bench: $(TESTED)
	$(BIN)/python -m tests.benchmarks

# Measure the service against its targets; needs two cores and wrk, and installs MLServer in a separate environment.
bench-serve: $(TESTED)
	$(BIN)/python -m tests.benchmarks.serving

# Compare ingest of traces of the published sizes with DuckDB and pandas; needs about 12 GB of temporary files.
bench-ingest: $(TESTED)
	$(BIN)/python -m tests.benchmarks.ingest

# Run an hour of load with feedback and model changes (MINUTES=10 for less); fails on any error, or if memory grows.
soak: $(TESTED)
	$(BIN)/python -m tests.benchmarks.serving.soak --minutes $(or $(MINUTES),60)

# Alter 10^6 inputs for each parser (INPUTS=1000 for fewer), and inject 1000 faults into the store; takes many hours.
fuzz: export TAUT_FUZZ_INPUTS = $(or $(INPUTS),1000000)
fuzz: export TAUT_FAULTS = 1000
fuzz: $(TESTED)
	$(BIN)/python -m pytest -m slow tests/modelserve/test_parsers_fuzzed.py tests/modelserve/store/test_store_faults.py

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url

# Regenerate the locks: versions and hashes only.
lock: $(TESTED)
	$(COMPILE) --extra train --extra postgres --extra s3 --extra install pyproject.toml --output-file requirements.lock
	$(COMPILE) --extra dev pyproject.toml --constraint requirements.lock --output-file tests/requirements.lock
	$(COMPILE) --group docs --output-file docs/requirements.lock

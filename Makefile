# Targets: demo, test, bench, lint. Each first makes .venv and installs into it; a second call finds it ready.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCHMARKS ?= $(wildcard benchmarks/[a-z]*.py)
BENCH_ARGS ?=

.PHONY: demo test bench lint install
.DELETE_ON_ERROR:

# threads that wait without spinning keep the demo quick on a busy machine
demo: export OMP_WAIT_POLICY := PASSIVE
demo: $(STAMP)
	$(BIN)/ppl-models demo --out demo --overwrite

test: export OMP_NUM_THREADS := 1
test: export MKL_NUM_THREADS := 1
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

# all of them, whatever one does; BENCH_ARGS=--quick for small ones
bench: $(STAMP)
	failed=; for script in $(BENCHMARKS); do \
	    echo "# $$script" >&2; \
	    $(BIN)/python $$script --out benchmarks/results/$$(basename $$script .py).jsonl $(BENCH_ARGS) || failed+=" $$script"; \
	done; \
	[[ -z $$failed ]] || { echo "failed:$$failed" >&2; exit 1; }

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

install: $(STAMP)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e ".[test]"
	touch $@

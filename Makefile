# Targets: demo, test, quick, docs, fuzz, killed, bench, papers, lint, format, release. Each first makes .venv and installs into it; a second call finds it ready.
# lowest and py312 run the tests with other versions, each in an environment of its own.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.docs_installed
RELEASE_STAMP := $(VENV)/.release_installed
BENCHMARKS ?= $(wildcard benchmarks/[a-z]*.py)
BENCH_ARGS ?=
FUZZ_ARGS ?=
DOCS_ARGS ?=
RELEASE_TAG ?= yes
HOURS ?= 1
PAPER ?=
TABLE ?=

# Python and torch of `make lowest` and `make py312`
LOWEST_PYTHON ?= python3.11
LOWEST_TORCH ?= 2.13.0
PY312 ?= python3.12

N ?=

.PHONY: demo test quick lowest py312 docs fuzz killed bench papers lint format release install
.DELETE_ON_ERROR:

# threads that wait without spinning keep the demo quick on a busy machine
demo: export OMP_WAIT_POLICY := PASSIVE
demo: $(STAMP)
	$(BIN)/ppl-models demo --out demo --overwrite

test: export OMP_NUM_THREADS := 1
test: export MKL_NUM_THREADS := 1
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

# in a minute or two: changed files as the formatter and ruff want them, laws of a dozen models, tests beside the changed files
quick: export OMP_NUM_THREADS := 1
quick: export MKL_NUM_THREADS := 1
quick: $(STAMP)
	$(BIN)/python tests/quick.py

# the tests with the lowest versions that pyproject.toml allows. Early releases of torch come with gigabytes of CUDA where no build for the
# processor alone is offered, so torch is held where it is unless told otherwise: LOWEST_TORCH=2.4.0. What libraries of unlike age say to each other of
# deprecation is no error here.
lowest: .venv-lowest/.installed
	@echo "lowest versions that pyproject.toml allows, but torch $(LOWEST_TORCH)" >&2
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n 2 --dist worksteal -W ignore::DeprecationWarning $(PYTEST_ARGS)

# the tests on Python 3.12, with the newest ArviZ, which 3.11 does not get; PY312=/a/python where python3.12 is not on the path
py312: .venv-py312/.installed
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 .venv-py312/bin/python -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

# N cases of the attack over all cores, 10,000 if not said; FUZZ_ARGS="--seed 123" for one case again
fuzz: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m fuzz --cases $(or $(N),10000) $(FUZZ_ARGS)

# N fits an engine, 15 if not said, killed and called again; FUZZ_ARGS="--engine EM --first 7" for some of them
killed: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m fuzz.killed --times $(or $(N),15) $(FUZZ_ARGS)

# all of them, whatever one does; BENCH_ARGS=--quick for small ones
bench: $(STAMP)
	failed=; for script in $(BENCHMARKS); do \
	    echo "# $$script" >&2; \
	    $(BIN)/python $$script --out benchmarks/results/$$(basename $$script .py).jsonl $(BENCH_ARGS) || failed+=" $$script"; \
	done; \
	[[ -z $$failed ]] || { echo "failed:$$failed" >&2; exit 1; }

# what is missing of the papers' tables, for HOURS; PAPER=noisy_or TABLE=1 for one of them, PAPERS_ARGS="--workers 2" or "--scheduler tcp://host:8786".
# Killed and called again it goes on; what it brings are records in benchmarks/papers/results, to be committed.
papers: $(STAMP)
	$(BIN)/python benchmarks/papers/run.py --hours $(HOURS) $(if $(PAPER),--paper "$(PAPER)") $(if $(TABLE),--table "$(TABLE)") $(PAPERS_ARGS)

# the site, into build/docs/site; DOCS_ARGS=--execute first runs the notebooks whose text has changed, at their full size, and keeps what they gave in notebooks/*.ipynb
docs: export OMP_NUM_THREADS := 1
docs: $(DOCS_STAMP)
	$(BIN)/python docs/build.py $(DOCS_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# files as the formatter writes them
format: $(STAMP)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# sdist and wheel in dist, checked, of a clean tree whose version has a section in CHANGELOG.md and no fragment left; then the tag.
# Publishes nothing. RELEASE_TAG= (empty) builds and checks without the tag.
release: $(RELEASE_STAMP)
	@fail() { echo "release: $$*" >&2; exit 1; }; \
	version=$$(sed -nE 's/^__version__ = "([^"]+)".*/\1/p' ppl_models/__init__.py); \
	[[ -n $$version ]] || fail "ppl_models/__init__.py: a line __version__ = \"...\" was expected"; \
	[[ -z $$(git status --porcelain) ]] || fail "the working tree has changes: commit or stash them (git status)"; \
	! git rev-parse -q --verify "refs/tags/v$$version" >/dev/null || fail "the tag v$$version is there: raise __version__ in ppl_models/__init__.py"; \
	grep -qF "## [$$version]" CHANGELOG.md || fail "CHANGELOG.md has no section [$$version]: $(BIN)/towncrier build --version $$version"; \
	left=$$(find changes -name '*.md' ! -name README.md); \
	[[ -z $$left ]] || fail "changes that are not in CHANGELOG.md yet: $(BIN)/towncrier build --version $$version, or the next version ("$$left")"; \
	grep -qx "version: $$version" CITATION.cff || fail "CITATION.cff: version: $$version was expected"; \
	rm -rf dist; \
	$(BIN)/python -m build --no-isolation --outdir dist .; \
	$(BIN)/twine check --strict dist/*; \
	target=$$(mktemp -d); trap 'rm -rf "$$target"' EXIT; \
	$(BIN)/python -m pip install -q --no-deps --target "$$target" dist/*.whl; \
	( cd "$$target" && PYTHONPATH=$$target $(CURDIR)/$(BIN)/python -c "import inference, ppl_models as p; assert p.__file__.startswith('$$target'); assert p.__version__ == inference.__version__ == '$$version'" ); \
	ls "$$target"/ppl_models/py.typed "$$target"/inference/py.typed >/dev/null; \
	[[ -z "$(RELEASE_TAG)" ]] || git tag -a "v$$version" -m "ppl-models $$version"; \
	ls -l dist; echo "release $$version is built and checked$(if $(RELEASE_TAG), and tagged v$$version)"

install: $(STAMP)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e ".[test]"
	touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install -c constraints.txt -e ".[docs]"
	touch $@

$(RELEASE_STAMP): $(STAMP)
	$(BIN)/python -m pip install -c constraints.txt -e ".[release]"
	touch $@

.venv-lowest/.installed: pyproject.toml
	$(LOWEST_PYTHON) -m venv --clear .venv-lowest
	sed -nE 's/^ +"([a-z0-9-]+)>=([0-9.]+).*",$$/\1==\2/p' pyproject.toml | sed 's/^torch==.*/torch==$(LOWEST_TORCH)/' | sort -u > .venv-lowest/lowest.txt
	.venv-lowest/bin/python -m pip install -c .venv-lowest/lowest.txt -e ".[test]"
	touch $@

.venv-py312/.installed: pyproject.toml constraints.txt
	$(PY312) -m venv --clear .venv-py312
	grep -v '^arviz==' constraints.txt > .venv-py312/constraints.txt
	.venv-py312/bin/python -m pip install -c .venv-py312/constraints.txt -e ".[test]"
	touch $@

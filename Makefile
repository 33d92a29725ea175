# Every target sets up .venv by itself, and only when it is missing or its inputs changed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# One process per core, each with one thread. The tests of a file stay together, because they share trained
# models; tests/conftest.py puts the files that take longest first.
PYTEST  = $(BIN)/pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# The pins are for Python 3.11; other versions get this torch and what else fits them.
PINS    = $(if $(findstring 3.11.,$(shell $(PYTHON) -V 2>&1)),-c constraints.txt,torch==2.13.0)

.PHONY: help demo test test-slow test-avx2 lint format docs bench bench-train bench-decode clean

help:
	@echo "make demo         see it work: a model learns to read dates, in about two minutes"
	@echo "make test         the tests (a few minutes)"
	@echo "make test-slow    the longer tests too"
	@echo "make test-avx2    the tests as if on a processor with AVX2 and nothing newer"
	@echo "make lint         ruff and mypy --strict"
	@echo "make format       let ruff format the code"
	@echo "make docs         the documentation as a site, in build/site"
	@echo "make bench        side-by-side speed against torch's own modules"
	@echo "make bench-train  training speed, memory and loss beside the peers (about an hour)"
	@echo "make bench-decode decoding speed beside the peers (about an hour)"
	@echo "make clean        remove .venv and the caches"

$(READY): pyproject.toml constraints.txt setup.py $(wildcard src/transduce/engine/csrc/*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "error: $(PYTHON) is no Python 3.10 or later; run: make PYTHON=/path/to/python3" >&2; exit 2; }
	@echo "Setting up $(VENV) (once, a few minutes) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check $(PINS) -e '.[demo,plot,dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/transduce demo

test: $(READY)
	OMP_NUM_THREADS=1 $(PYTEST)

# As if on a processor with AVX2 and nothing newer (Linux)
test-avx2: $(READY)
	OMP_NUM_THREADS=1 .ci/as-if-avx2 $(PYTEST)

test-slow: $(READY)
	OMP_NUM_THREADS=1 $(PYTEST) -m "slow or not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	@$(BIN)/pip install --quiet --disable-pip-version-check $(PINS) -e '.[docs]'
	$(BIN)/python docs/generate_configuration.py
	$(BIN)/mkdocs build --strict

bench: $(READY)
	$(BIN)/python bench/blocks.py

bench-train: $(READY)
	@$(BIN)/pip install --quiet --disable-pip-version-check $(PINS) -e '.[bench]'
	$(BIN)/python bench/train_speed.py

# Of a trained model: make bench-decode MODEL=runs/en-de/best
bench-decode: $(READY)
	@$(BIN)/pip install --quiet --disable-pip-version-check $(PINS) -e '.[bench,export]'
	$(BIN)/python bench/decode_speed.py $(if $(MODEL),--model-folder $(MODEL))

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

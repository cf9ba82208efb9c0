# Three commands, from nothing: `make demo`, `make test` and `make docs`. Each creates .venv if it is missing or out of date.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEV_READY := .venv/.dev-ready
DOCS_READY := .venv/.docs-ready
# Tests and the build of kernels start dozens of processes. Without byte code, each would compile the sources of torch anew: three
# seconds for every one of them. So it is kept, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

CHECKS := tests/docs bench/tests/benchmarks/test_docs.py bench/tests/benchmarks/test_traced.py

.PHONY: help demo test docs lint types imports kernels pytest check golden bench tables signatures wheel format clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

SET_UP := pyproject.toml bench/pyproject.toml constraints.txt scripts/setup.sh

$(READY): $(SET_UP)
	@PYTHON="$(PYTHON)" sh scripts/setup.sh demo

# With the tools of the tests, and packages that only tests need.
$(DEV_READY): $(SET_UP)
	@PYTHON="$(PYTHON)" sh scripts/setup.sh dev

demo: kernels ## sample heat and Burgers fields without and with laws; writes build/demo/
	@$(BIN)/snapfm demo --out build/demo

# The checks run one after the other, beside the tests.
test: $(DEV_READY) ## lint, types, import contract, tests
	@$(MAKE) --no-print-directory --jobs=2 pytest lint types imports

$(DOCS_READY): $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation --editable '.[docs]'
	@touch $@

docs: $(DOCS_READY) ## run the gallery and build the documentation site; writes site/
	$(BIN)/python examples/gallery docs/gallery
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site: site/index.html"

lint: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/unreached.py

types: $(DEV_READY)
	$(BIN)/mypy

imports: $(DEV_READY)
	$(BIN)/lint-imports

kernels: $(READY) ## compile the kernels now, on all cores
	@$(BIN)/snapfm kernels

pytest: $(DEV_READY) kernels
	$(BIN)/pytest -q -n 2 --dist worksteal $(CHECKS:%=--ignore=%)

check: $(DEV_READY) ## what pages and records say: figures against records, links, the reference, the gallery
	$(BIN)/pytest -q -n 2 --dist worksteal $(CHECKS)

golden: $(DEV_READY) ## compare every answer with the committed record: bits, rounding or behavior
	PYTHONPATH=.:bench $(BIN)/python -m benchmarks.golden

bench: $(DEV_READY) ## run the micro benchmarks; appends to bench/records/
	PYTHONPATH=.:bench $(BIN)/python -m benchmarks

tables: $(DEV_READY) ## run every published timing on this commit, in about 65 minutes; writes the pages
	PYTHONPATH=.:bench $(BIN)/python -m benchmarks.published

signatures: $(DEV_READY) ## list the kernels to compile ahead, after a change of what kernels take
	$(BIN)/python -m tests.kernels.tour

wheel: $(READY) ## build a wheel with kernels compiled for common processors, for this system and Python; writes dist/
	SNAPFM_COMPILE=common $(BIN)/python -m hatchling build -t wheel

format: $(DEV_READY) ## format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what the commands made, the environment included
	rm -rf .venv build site docs/gallery .mypy_cache .ruff_cache .pytest_cache .hypothesis

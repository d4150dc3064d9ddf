# Two commands do all the set-up on a machine with Python 3.11 or newer:
#   make demo    the reference experiment, in virtual time and over HTTP, with a report
#   make test    every check and every test
# PYTHON=/path/to/python3 picks the interpreter; OUT= says where the demo's runs go.

PYTHON ?= python3 python3.13 python3.12 python3.11 python3.14 python
OUT ?= runs/demo
VENV := .venv
BIN := $(VENV)/bin
SOURCES := mockserver loadgen traces reports tests benchmarks docs

.PHONY: demo test check format docs clean
.DELETE_ON_ERROR:

# Each experiment prints its table; the pages are written whatever it finds, and an invalid run fails the demo.
demo: $(VENV)/.installed
	rm -rf $(OUT)
	$(BIN)/loadgen experiment --clock virtual --out $(OUT)/virtual
	@$(BIN)/reports compare $(OUT)/virtual/* --html $(OUT)/report.html > $(OUT)/report.txt
	@echo "page: $(OUT)/report.html"
	$(BIN)/loadgen experiment --target http --time-scale auto --twins $(OUT)/virtual --out $(OUT)/http || test $$? = 1
	@echo "pages: $(OUT)/report.html (virtual time), $(OUT)/report-http.html (over HTTP)"
	@$(BIN)/reports compare $(OUT)/http/* --html $(OUT)/report-http.html > $(OUT)/report-http.txt

test: check
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

# The tables of settings in docs/*.md, from the classes that define them.
docs: $(VENV)/.installed
	$(BIN)/python docs/options.py

clean:
	rm -rf $(VENV) runs dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -exec rm -rf {} +

# The first of PYTHON that is new enough and can make virtual environments.
$(BIN)/python:
	@for python in $(PYTHON); do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "$$python -m venv $(VENV)"; exec "$$python" -m venv $(VENV); \
	  fi; \
	done; \
	echo "none of these is a Python 3.11 or newer that can make virtual environments: $(PYTHON)" >&2; \
	echo "name one: make PYTHON=/path/to/python3 (on Debian, python3-venv must be installed)" >&2; \
	exit 2

# pip learnt dependency groups in 25.1, and the pip that comes with Python may be older.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing replayrig and the libraries it needs into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing what checks and tests need into $(VENV)"
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

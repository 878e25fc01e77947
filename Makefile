# The course's commands. Each installs what it needs into .venv first; a second run installs nothing.
#   make lab       learn: opens JupyterLab at your own copy of the first chapter
#   make test      run the tests
#   make test-oldest   the same on the oldest PyTorch that the course accepts, in .venv-oldest
#   make course    execute the chapters and print the claims report (finished chapters are kept)
#   make build     regenerate exercises and notebooks from their sources
#   make lint      check style and spelling
#   make bench     run the benchmarks
#
# PYTHON=python3.12     the interpreter that makes .venv
# PIP_FLAGS=...         for pip, such as --extra-index-url
# LAB_FLAGS=...         for JupyterLab, such as --no-browser
# TEST_FLAGS=...        for pytest, such as -m "not slow"
# TESTS=browser         with the tests that drive JupyterLab in Chromium

PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
OLDEST_TORCH := 2.6.0
WORKERS ?= 2
TESTS ?= test
FIRST := 01_graphs_and_no_grad.ipynb
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help lab test test-oldest course build lint bench clean

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

$(VENV)/.created:
	@"$(PYTHON)" -c "" 2>/dev/null || { \
	  echo "'$(PYTHON)' does not run here: install Python 3.10 to 3.13, or name one with PYTHON=python3.12." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' || { \
	  echo "The course needs Python 3.10 to 3.13, and $(PYTHON) is $$("$(PYTHON)" -V 2>&1): name another with PYTHON=python3.12." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make environments: install its venv module (Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; }
	"$(PYTHON)" -m venv "$(VENV)"
	@touch $@

# One stamp for each set of packages; newer metadata or pins make it stale.
$(VENV)/.extra-%: $(VENV)/.created pyproject.toml $(CONSTRAINTS)
	$(PIP) install $(PIP_FLAGS) -c $(CONSTRAINTS) -e ".[$*]"
	@touch $@

lab: $(VENV)/.extra-lab
	$(BIN)/pitfalls start
	$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/$(FIRST) $(LAB_FLAGS) work

test: $(VENV)/.extra-$(TESTS)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(TEST_FLAGS)

# Each torch asks for a sympy of its own. Exact outputs are compared on the pinned torch alone.
build/constraints-oldest.txt: constraints.txt
	@mkdir -p build
	sed -e 's/^torch==.*/torch==$(OLDEST_TORCH)/' -e '/^sympy==/d' constraints.txt > $@

test-oldest: build/constraints-oldest.txt
	$(MAKE) test VENV=.venv-oldest CONSTRAINTS=build/constraints-oldest.txt

course: $(VENV)/.extra-run
	$(BIN)/pitfalls run --resume

build: $(VENV)/.extra-run
	$(BIN)/pitfalls build

lint: $(VENV)/.extra-$(TESTS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy

bench: $(VENV)/.extra-run
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

clean:
	rm -rf "$(VENV)" build

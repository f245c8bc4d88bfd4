# kvell: `make serve` on a fresh machine is enough. Needs python3.11 or newer and make.
#
#   make serve [MODEL=...] [PORT=...]   install, fetch the model, serve
#   make install                        only .venv with .venv/bin/kvell
#   make test                           the whole test suite
#   make check                          lint, types, architecture
#
# TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu spares a machine without a GPU the CUDA build of torch.

PYTHON ?= $(shell command -v python3.13 || command -v python3.12 || command -v python3.11 || command -v python3)
VENV ?= .venv
MODEL ?= smollm2-135m-instruct
PORT ?= 8000
TORCH_INDEX_URL ?=
CONSTRAINTS ?= constraints.txt

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q --prefer-binary -c $(CONSTRAINTS)

.PHONY: serve install test check format clean
.DEFAULT_GOAL := install

install: $(VENV)/.installed

serve: $(VENV)/.installed
	exec $(BIN)/kvell serve $(MODEL) --port $(PORT)

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "kvell needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: $(CONSTRAINTS) | $(BIN)/python
	@echo "Installing PyTorch and the rest into $(VENV); the first time takes some minutes."
	$(PIP) torch $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL))
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) -e '.[test]'
	@touch $@

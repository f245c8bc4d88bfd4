# kvell: `make serve` on a fresh machine is enough. Needs python3.11 or newer and make.
#
#   make serve [MODEL=...] [PORT=...]   install, fetch the model, serve
#   make install                        only .venv with .venv/bin/kvell
#   make test                           the whole test suite
#   make check                          lint, types, architecture
#
# TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu spares a machine without a GPU the CUDA build of torch.

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)
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
	@test -n "$(PYTHON)" || { echo "kvell needs Python 3.11 or newer; name one with PYTHON="; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: $(CONSTRAINTS) | $(BIN)/python
	@echo "Installing PyTorch and the rest into $(VENV); the first time takes some minutes."
	$(PIP) torch $(if $(TORCH_INDEX_URL),--extra-index-url $(TORCH_INDEX_URL))
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) -e '.[test]'
	@touch $@

# kvell: `make serve` on a fresh machine is enough. Needs python3.11 or newer and make.
#
#   make serve [MODEL=...] [PORT=...]   install, fetch the model, serve
#   make install                        only .venv with .venv/bin/kvell
#   make test                           the whole test suite
#   make check                          lint, types, architecture
#   make test-native                    the C++ kernels under the address, undefined-behaviour and thread sanitizers
#   make bench-peers [ONLY=...] [QUICK=1]   kvell against the peers, which are installed under build/peers first
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

.PHONY: serve install test check test-native bench-peers format clean
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

# Needs only a C++ compiler. A file named *_avx2.cpp (and so on) is built with that instruction set, where this machine's
# compiler knows it; `setup.py` holds the flags of what is shipped.
CSRC := model/kernels/csrc
NATIVE := build/native
NATIVE_CXX := $(CXX) -std=c++17 -O1 -g -Wall -Wextra -Werror -ffp-contract=off -fno-omit-frame-pointer -pthread
ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
NATIVE_SETS := avx2
endif
NATIVE_DEFINES := $(patsubst %,-DKVELL_BUILD_%,$(shell echo $(NATIVE_SETS) | tr a-z A-Z))
FLAGS_avx2 := -mavx2 -mfma -mf16c
NATIVE_ALL := $(filter-out %_avx2.cpp %_avx512.cpp %_neon.cpp,$(wildcard $(CSRC)/*.cpp))
NATIVE_ALL += $(foreach set,$(NATIVE_SETS),$(wildcard $(CSRC)/*_$(set).cpp))

test-native: $(NATIVE)/address/selftest $(NATIVE)/thread/selftest
	UBSAN_OPTIONS=print_stacktrace=1 $(NATIVE)/address/selftest
	$(NATIVE)/thread/selftest

$(NATIVE)/address/%: SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all
$(NATIVE)/thread/%: SANITIZE := -fsanitize=thread

define native_rules
$(NATIVE)/$(1)/%.o: $(CSRC)/%.cpp $(wildcard $(CSRC)/*.h)
	@mkdir -p $$(@D)
	$$(NATIVE_CXX) $$(SANITIZE) $$(NATIVE_DEFINES) \
	  $$(FLAGS_$$(lastword $$(subst _, ,$$*))) -c $$< -o $$@

$(NATIVE)/$(1)/selftest: $(NATIVE_ALL:$(CSRC)/%.cpp=$(NATIVE)/$(1)/%.o)
	$$(NATIVE_CXX) $$(SANITIZE) $$^ -o $$@
endef
$(foreach kind,address thread,$(eval $(call native_rules,$(kind))))

# An hour to install and another to measure: cmake, a C++ compiler and 10 GB of disk. PEERS names the ones to install, ONLY
# the contests to run (decode, batch, prompt, http, start, gemma, busy). A peer that can't be installed is skipped.
PEERS ?=
ONLY ?=
BENCH_PEERS := build/peers

bench-peers: $(VENV)/.installed-test
	-$(BIN)/python -m benchmarks.peer.install --into $(BENCH_PEERS) --only "$(PEERS)"
	$(BIN)/python -m benchmarks.peers --peers $(BENCH_PEERS) --only "$(ONLY)" $(if $(QUICK),--quick)

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

# What an install is made of; sources of Python are used where they lie.
INPUTS := pyproject.toml setup.py $(wildcard model/kernels/csrc/*)

$(VENV)/.installed: $(VENV)/.torch $(INPUTS)
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.torch $(INPUTS)
	$(PIP) -e '.[test]'
	@touch $(VENV)/.installed $@

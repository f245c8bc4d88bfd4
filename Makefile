# kvell: `make serve` on a fresh machine is enough. Needs python3.11 or newer and make.
#
#   make serve [MODEL=...] [PORT=...]   install, fetch the model, serve
#   make install                        only .venv with .venv/bin/kvell
#   make test                           the whole test suite
#   make test-contract                  the API's longest tests whole: fifty replays, all schemas at both temperatures
#   make test-clients                   other projects' clients (litellm, langchain, llm, lm-eval, openai's for node)
#   make test-faults [FAULT_REPEATS=20] every fault that often, at random moments, and a table of what was seen
#   make test-disk                      prefixes on disk through kills and spoiled files; the log's secrets in both formats
#   make check                          lint, types, architecture
#   make test-page                      the page in a real Chromium
#   make test-prometheus                figures, alerts and dashboard against a real Prometheus, where one is installed
#   make test-native                    the C++ kernels under the address, undefined-behaviour and thread sanitizers
#   make bench-peers [ONLY=...] [QUICK=1]   kvell against the peers, which are installed under build/peers first
#   make test-neon                      the kernels for 64-bit Arm under qemu-user, where a cross compiler is installed
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
TEST_WORKERS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q --prefer-binary -c $(CONSTRAINTS)

.PHONY: serve install test test-contract test-faults test-disk test-clients check test-page test-prometheus test-native test-avx512 test-neon bench-peers format clean
.DEFAULT_GOAL := install

install: $(VENV)/.installed

serve: $(VENV)/.installed
	exec $(BIN)/kvell serve $(MODEL) --port $(PORT)

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist loadfile

FAULT_REPEATS ?= 20
test-faults: $(VENV)/.installed-test
	FAULT_REPEATS=$(FAULT_REPEATS) $(BIN)/python -m pytest -q tests/faults

test-contract: $(VENV)/.installed-test
	KVELL_TEST_COMPLETE=1 $(BIN)/python -m pytest -q -rP tests/e2e/test_real_model.py tests/reference/test_logprobs_over_http.py

test-disk: $(VENV)/.installed-test
	KVELL_TEST_COMPLETE=1 $(BIN)/python -m pytest -q tests/e2e/long_prefix_disk.py tests/e2e/test_prefix_disk.py tests/e2e/test_secrets.py

# In an environment of their own: they are large, and their pins (constraints-clients.txt) are not ours. The server under
# test runs in .venv.
CLIENTS := .venv-clients
NODE_PACKAGES := openai@6.49.0 zod@4.6.7
CLIENT_PACKAGES := import tomllib; \
  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["clients"], sep="\n")

test-clients: $(VENV)/.installed-test $(CLIENTS)/.installed
	KVELL_TEST_PYTHON=$(abspath $(BIN)/python) KVELL_NODE_MODULES=$(abspath $(CLIENTS)) \
	  $(CLIENTS)/bin/python -m pytest -q -p no:unraisableexception tests/clients  # what they leave open is theirs

$(CLIENTS)/.installed: pyproject.toml constraints-clients.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(PYTHON) -c '$(CLIENT_PACKAGES)' > $(CLIENTS)/packages.txt
	$(CLIENTS)/bin/python -m pip --disable-pip-version-check install -q --prefer-binary -c constraints-clients.txt \
	  -r $(CLIENTS)/packages.txt
	if command -v npm >/dev/null; then npm install --silent --prefix $(CLIENTS) $(NODE_PACKAGES); fi
	@touch $@

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

# The C++ self-test: every kernel against plain C, bit for bit, on random shapes, odd sizes and extreme values. A file named
# *_avx2.cpp (and so on) is built with that instruction set; `setup.py` holds the flags of what is shipped.
#
#   address, thread  this machine's instruction sets under the sanitizers
#   emulated         AVX-512, whose instructions tests/model/kernels/emulated_avx512.h spells out: any processor runs it
#   neon             64-bit Arm with NEON, by qemu-user, its kernels optimised as they are shipped; neon-address with the
#                    sanitizers (but no search for leaks, which qemu does not allow)
CSRC := model/kernels/csrc
NATIVE := build/native
NATIVE_FLAGS := -std=c++17 -O1 -g -Wall -Wextra -Werror -ffp-contract=off -fno-omit-frame-pointer -pthread
FLAGS_avx2 := -mavx2 -mfma -mf16c
FLAGS_avx512 := $(FLAGS_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512vnni
FLAGS_neon := -march=armv8.2-a+dotprod -O3
SETS_x86 := avx2 avx512
SETS_arm := neon
ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
NATIVE_SETS := $(SETS_x86)
else ifneq ($(filter aarch64 arm64,$(shell uname -m)),)
NATIVE_SETS := $(SETS_arm)
endif
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all
CROSS := aarch64-linux-gnu-g++
QEMU := qemu-aarch64
SYSROOT := /usr/aarch64-linux-gnu

native_sources = $(filter-out %_avx2.cpp %_avx512.cpp %_neon.cpp,$(wildcard $(CSRC)/*.cpp)) \
  $(foreach set,$(1),$(wildcard $(CSRC)/*_$(set).cpp))
native_objects = $(patsubst $(CSRC)/%.cpp,$(NATIVE)/$(1)/%.o,$(call native_sources,$(2)))

# Needs Debian's chromium; the page's tests are skipped by name without it.
test-page: $(VENV)/.installed-test
	$(PIP) -e '.[browser]'
	$(BIN)/python -m pytest -q tests/e2e/test_page.py

# Needs Debian's prometheus (with promtool); skipped by name without it.
test-prometheus: $(VENV)/.installed-test
	KVELL_TEST_INPUTS=10000 $(BIN)/python -m pytest -q tests/docker tests/e2e/test_prometheus.py tests/server/metrics

test-native: $(NATIVE)/address/selftest $(NATIVE)/thread/selftest $(if $(filter avx512,$(NATIVE_SETS)),test-avx512)
	UBSAN_OPTIONS=print_stacktrace=1 $(NATIVE)/address/selftest
	$(NATIVE)/thread/selftest

test-avx512: $(NATIVE)/emulated/selftest
	$(NATIVE)/emulated/selftest

ifneq ($(shell command -v $(CROSS)),)
ifneq ($(shell command -v $(QEMU)),)
NEON_TOOLS := yes
endif
endif
ifeq ($(NEON_TOOLS),yes)
test-neon: $(NATIVE)/neon/selftest $(NATIVE)/neon-address/selftest
	$(QEMU) -cpu max $(NATIVE)/neon/selftest
	ASAN_OPTIONS=detect_leaks=0 $(QEMU) -cpu max -L $(SYSROOT) $(NATIVE)/neon-address/selftest
else
test-neon:
	@echo "test-neon: skipped, it needs $(CROSS) and $(QEMU) (Debian: g++-aarch64-linux-gnu, qemu-user)"
endif

# Directory, compiler, flags, instruction sets.
define native_rules
$(NATIVE)/$(1)/%.o: $(CSRC)/%.cpp $(wildcard $(CSRC)/*.h)
	@mkdir -p $$(@D)
	$(2) $$(NATIVE_FLAGS) $(3) $$(patsubst %,-DKVELL_BUILD_%,$(shell echo $(4) | tr a-z A-Z)) \
	  $$(FLAGS_$$(lastword $$(subst _, ,$$*))) -c $$< -o $$@

$(NATIVE)/$(1)/selftest: $(call native_objects,$(1),$(4))
	$(2) $$(NATIVE_FLAGS) $(3) $$^ -o $$@
endef
$(eval $(call native_rules,address,$(CXX),$(SANITIZE),$(NATIVE_SETS)))
$(eval $(call native_rules,thread,$(CXX),-fsanitize=thread,$(NATIVE_SETS)))
$(eval $(call native_rules,neon,$(CROSS),-static,$(SETS_arm)))
$(eval $(call native_rules,neon-address,$(CROSS),$(SANITIZE),$(SETS_arm)))

# Two of the address build's files once more, with the emulated instructions.
EMULATED := gemm_avx512.o isa.o
EMULATOR := tests/model/kernels/emulated_avx512.h
$(NATIVE)/emulated/%.o: $(CSRC)/%.cpp $(EMULATOR) $(wildcard $(CSRC)/*.h)
	@mkdir -p $(@D)
	$(CXX) $(NATIVE_FLAGS) $(SANITIZE) -DKVELL_BUILD_AVX2 -DKVELL_BUILD_AVX512 $(FLAGS_avx2) -include $(EMULATOR) -c $< -o $@

$(NATIVE)/emulated/selftest: $(addprefix $(NATIVE)/emulated/,$(EMULATED)) \
  $(filter-out $(addprefix $(NATIVE)/address/,$(EMULATED)),$(call native_objects,address,$(NATIVE_SETS)))
	$(CXX) $(NATIVE_FLAGS) $(SANITIZE) $^ -o $@

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
	rm -rf $(VENV) $(CLIENTS) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

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

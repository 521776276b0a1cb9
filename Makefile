# `make help` lists the commands. Needs a Python of 3.11 or newer, gcc and make; fetches the rest.

PYTHON ?= python3
VENV ?= .venv
EXAMPLE ?= examples/gated_rms_norm.py
BUDGET ?= 120s
DEMO_FLAGS ?=
PYTEST_FLAGS ?=
PROCESSES ?=
BENCH_FLAGS ?=

MAKEFLAGS += --no-print-directory
# Hundreds of processes load the checkout.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TESTS = PROCESSES=$(PROCESSES) $(BIN)/python -m tests.run

# A virtual environment outside the checkout may have served another checkout before: point it at this one.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Variables: PYTHON=$(PYTHON) VENV=$(VENV) EXAMPLE=$(EXAMPLE) BUDGET=$(BUDGET) DEMO_FLAGS= PYTEST_FLAGS= PROCESSES=$(PROCESSES) BENCH_FLAGS="

.PHONY: demo
demo: system $(STAMP) ## make a module under examples/ faster, on whatever this machine has
	$(BIN)/kernel-assistant optimize $(EXAMPLE) --budget $(BUDGET) $(DEMO_FLAGS)

.PHONY: test
test: system $(STAMP) ## run the tests that decide: deterministic ones, each main path once
	@$(TESTS) gate $(PYTEST_FLAGS)

.PHONY: test-timed
test-timed: system $(STAMP) ## run the tests whose outcome depends on measured time, one after another
	@$(TESTS) timed $(PYTEST_FLAGS)

.PHONY: test-lost
test-lost: system $(STAMP) ## run the tests in which processes, machines or room are lost
	@$(TESTS) lost $(PYTEST_FLAGS)

.PHONY: test-builds
test-builds: system $(STAMP) ## run the tests that compile for minutes
	@$(TESTS) builds $(PYTEST_FLAGS)

.PHONY: test-programs
test-programs: system $(STAMP) ## run the tests that start users' programs one after another
	@$(TESTS) programs $(PYTEST_FLAGS)

.PHONY: test-learns
test-learns: system $(STAMP) ## run the tests that training learns
	@$(TESTS) learns $(PYTEST_FLAGS)

.PHONY: test-cluster
test-cluster: system $(STAMP) ## run the tests that need sshd, Ray or torchrun
	@.ci/system-packages "$(PYTHON)" --for-ci
	@$(TESTS) cluster $(PYTEST_FLAGS)

.PHONY: test-gpu
test-gpu: system $(STAMP) ## run the tests that need an NVIDIA GPU
	@$(TESTS) gpu $(PYTEST_FLAGS)

.PHONY: test-vllm
test-vllm: system $(STAMP) ## run the tests that need vLLM, on the CPU (fetches 3.4 GB once)
	@.ci/vllm $(BIN)/python

.PHONY: test-editors
test-editors: system $(STAMP) ## run the tests in VS Code, Neovim and Emacs (fetches 620 MB once)
	@.ci/editors $(BIN)/python

.PHONY: vsix
vsix: ## pack the VS Code extension into dist/kernel-assistant.vsix
	@.ci/vsix "$(PYTHON)" dist/kernel-assistant.vsix

.PHONY: check
check: lint ## what to run before a commit: linters, types, import contracts, the quick tests
	@$(TESTS) quick $(PYTEST_FLAGS)

.PHONY: lint
lint: system $(STAMP) ## linters, types and import contracts alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

.PHONY: format
format: $(STAMP) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: bench
bench: system $(STAMP) ## measure this tool itself; figures go to docs/benchmarks/
	$(BIN)/python bench/run.py $(BENCH_FLAGS)

.PHONY: verdicts
verdicts: system $(STAMP) ## judge the frozen corpus of candidates again: before a change of the judge or the screen
	$(BIN)/python -m bench.verdicts $(BENCH_FLAGS)

.PHONY: trust
trust: system $(STAMP) ## judge every attack of the suites and honest controls; writes docs/trust.md
	$(BIN)/python -m bench.trust $(BENCH_FLAGS)

.PHONY: venv
venv: $(STAMP) ## make the virtual environment alone

$(STAMP): pyproject.toml constraints.txt
	@.ci/venv "$(PYTHON)" "$(VENV)"
	@printf '%s' "$(CURDIR)" > $@

.PHONY: system
system:
	@.ci/system-packages "$(PYTHON)"

.PHONY: clean
clean: ## remove .venv, caches and build outputs from the checkout
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	cd extensions/vscode && rm -rf dist node_modules LICENSE *.vsix
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

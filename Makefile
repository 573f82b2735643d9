# Everything from a bare Python: `make test` and `make demo` install what they need into $(VENV).
# Variables: PYTHON (3.11 or newer), VENV, TORCH (another build), PYTEST_ARGS, DEMO_ARGS,
# FUZZ_ARGS, SOAK_ARGS, SWARM_TEST_ARGS, ARCH_ARGS.

VENV ?= .venv
BIN := $(VENV)/bin

ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; \
done)
endif

# torch comes first and by itself, so that nothing else decides which build of it is taken.
# 2.10 and later die with SIGILL on a Raspberry Pi 4 (docs/decisions/001-libraries.md).
ifeq ($(shell uname -m),aarch64)
TORCH ?= torch==2.9.1
else
TORCH ?= torch==2.13.0
endif

# Two at once: most tests wait for clocks and processes more than they compute.
PYTEST_ARGS ?= -n 2 --dist worksteal

DEMO_ARGS ?= --peers 4 --minutes 3 --json demo.json

# Where the emulated machines are kept: 1.8 GB; `--clean` removes it.
ARCH_ARGS ?= --work $(HOME)/.cache/neuroswarm-arch

.DEFAULT_GOAL := help
.PHONY: help test long demo fuzz soak swarm-test arch-test check lint format types protos docs dev clean

help: ## show this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

test: $(VENV)/.dev ## set up and pass the tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

long: $(VENV)/.dev ## pass the tests that take minutes: whole nodes behind routers (root), memory of a node, a short soak
	$(BIN)/python -m pytest -m long

demo: $(VENV)/.plot ## set up and watch four peers train one model
	$(BIN)/neuroswarm demo $(DEMO_ARGS)

fuzz: $(VENV)/.dev ## send a live node a million malformed datagrams and 100,000 calls (FUZZ_ARGS)
	$(BIN)/python tests/fuzz/fuzz_run.py $(FUZZ_ARGS)

soak: $(VENV)/.dev ## let six nodes train through an hour of crashes, partitions and losses (SOAK_ARGS)
	$(BIN)/python tests/soak/soak_run.py $(SOAK_ARGS)

swarm-test: $(VENV)/.dev ## deploy the stack and compose files on real Docker engines (root, docker.io, debootstrap; SWARM_TEST_ARGS)
	$(BIN)/python tests/deployment/swarm_run.py $(SWARM_TEST_ARGS)

arch-test: $(VENV)/.dev ## let a node on emulated Cortex-A72 and Ivy Bridge train with a native one (ARCH_ARGS)
	$(BIN)/python tests/arch/arch_run.py $(ARCH_ARGS)

dev: $(VENV)/.dev ## set up for development

check: lint types test ## all that a change must pass, but for the wheel (.ci/run does that too)

lint: $(VENV)/.dev ## formatting, lint, floors, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell

types: $(VENV)/.dev ## static types
	$(BIN)/mypy

format: $(VENV)/.dev ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

protos: $(VENV)/.dev ## generate neuroswarm/v1 from protos/
	$(BIN)/python -m grpc_tools.protoc -Iprotos --python_out=. --pyi_out=. protos/neuroswarm/v1/*.proto

docs: $(VENV)/.dev ## write docs/configuration.md from the settings
	$(BIN)/python -m neuroswarm.config.reference > docs/configuration.md

clean: ## remove what was installed and built here
	rm -rf $(VENV) build dist

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "needs Python 3.11 or newer: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "cannot make $(VENV): on Debian, apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.torch: $(VENV)/.python
	$(BIN)/python -m pip install --quiet $(TORCH)
	@touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/.plot: $(VENV)/.torch pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	@touch $@

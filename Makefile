# Every target with its line: `make`.
.DEFAULT_GOAL := help
SHELL := /bin/bash
REQUEST ?= examples/requests/tiny.json
RUNS ?= 1000
SEED ?= 1
COUNT ?= 100000
FIRST ?= 0
GPU_PYTHON ?= python3
COVERAGE := 93
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
PY := .venv/bin/python
export PYTHONPATH := $(CURDIR)/shared:$(CURDIR)/infra/workflow_engine/src:$(CURDIR)
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup run up down status demo test test-torch check stage simulate fuzz bench gpu test-cluster rehearse test-nemo test-replay cov release fmt clean

help: ## list every target with one line
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## the Python environment, from uv.lock (made by every other target when needed)

.uv/bin/uv:
	python3 -m venv .uv
	.uv/bin/python -m pip install --quiet --disable-pip-version-check uv

.venv/.ready: pyproject.toml infra/workflow_engine/pyproject.toml uv.lock | $(filter .uv/bin/uv,$(UV))
	$(UV) sync --frozen --quiet
	@touch $@

run: setup ## local stack up, one request through its whole life, stack down [REQUEST=file.json]
	@$(PY) -m infra.local.run $(REQUEST)

up: setup ## the same stack, kept in the background; prints the environment for `lustrum` and `lustrum-local`
	@infra/local/commands/lustrum-local up

down: setup ## end it
	@infra/local/commands/lustrum-local down

status: setup ## what of it is up, its runs, what exists in its cloud
	@infra/local/commands/lustrum-local status

demo: setup ## two runs on it at once, a preemption and a filling Lustre, told as they are met
	@$(PY) -m infra.local.demo

test: setup ## every test but the slow and the cluster tier
	$(PY) -m pytest -n 2 --dist loadfile -m "not slow and not cluster and not nemo and not rehearse"

.venv-torch/.ready: uv.lock | $(filter .uv/bin/uv,$(UV))
	UV_PROJECT_ENVIRONMENT=.venv-torch $(UV) sync --frozen --quiet --only-group gpu --compile-bytecode
	@touch $@

test-torch: setup .venv-torch/.ready ## the PyTorch example on the CPU; fetches torch once, 4.5 GB (then `make test` has it too)
	$(PY) -m pytest tests/head/test_grpo_torch.py

test-replay: setup ## the failures people reported, replayed
	$(PY) -m pytest tests/replay

test-nemo: setup ## NeMo-RL's own loader on every profile's command, v0.4.0 to v0.7.0 [NEMO_RL=clone of NVIDIA-NeMo/RL]
	@test -n "$(NEMO_RL)" || { echo "NEMO_RL must name a clone of NVIDIA-NeMo/RL with its tags"; exit 2; }
	NEMO_RL="$(NEMO_RL)" $(PY) -m pytest tests/nemo -m nemo

check: setup ## lint, types, layers, staging, shell scripts, workflows
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/shellcheck $$(git ls-files '*.sh' .ci/run)
	$(PY) -m infra.staging
	for file in workflows/*.yaml; do $(PY) -m infra.local.workflows check --strict $$file || exit 2; done
	$(PY) -m pytest tests/test_staging.py

stage: setup ## copy the library beside each function's main.py (build/functions), ready to deploy
	@$(PY) -m infra.staging

simulate: setup ## fault schedules in virtual time [RUNS=1000 SEED=1]
	@$(PY) -m testing.simulation $(RUNS) $(SEED)

fuzz: setup ## made workflows through the engine: no internal error, no hang [COUNT=100000 FIRST=0]
	@PYTHONPATH=$(CURDIR)/infra/workflow_engine/src:$(CURDIR)/infra/workflow_engine $(PY) -m engine_tests.fuzz.run --count $(COUNT) --first $(FIRST)

mutants: setup ## plausible bugs, one at a time: each caught by a test and by the simulation [ONLY=name or class]
	@$(PY) -m testing.mutants $(if $(ONLY),--only $(ONLY))

bench: setup ## benchmarks; writes bench/results.json
	@$(PY) -m bench

gpu: ## GRPO on this machine's GPU under the supervisor: figures in a table [GPU_PYTHON=python3 PARTS="killed saves"]
	@$(GPU_PYTHON) -m examples.grpo_torch.measure .lustrum/gpu $(PARTS)

test-cluster: setup ## real kube-apiserver and KubeRay operator (builds them the first time)
	$(PY) -m testing.cluster.tools.build
	$(PY) -m pytest tests/cluster -m cluster

rehearse: setup ## whole builds with the real gcluster (builds it the first time)
	$(PY) -m testing.rehearse.build gcluster
	$(PY) -m pytest tests/rehearse

cov: setup ## branch coverage of the library but its head/ (own processes); fails below COVERAGE
	$(PY) -m pytest -n 2 --dist loadfile -m "not slow and not cluster and not nemo and not rehearse" --cov=lustrum --cov-branch --cov-report=term:skip-covered \
	  --cov-fail-under=$(COVERAGE) $(addprefix tests/,core head functions replay cli adapters)

release: setup ## check, test, tag the version that CHANGELOG names, build it into dist/
	$(PY) -m infra.release check
	$(MAKE) check test cov
	$(PY) -m infra.release tag
	$(UV) build --quiet

fmt: setup ## format the code
	.venv/bin/ruff check --fix --quiet . ; .venv/bin/ruff format .

clean: ## remove what was built or run here
	rm -rf build .coverage .lustrum .pytest_cache .mypy_cache .ruff_cache .hypothesis

# All set-up is done here: `make demo` or `make test` on a fresh machine needs Python 3.10 or
# later with its venv module, and nothing else. Everything lands in .venv; `make clean` removes it.

PYTHON ?= python3
FUZZ_SECONDS ?= 60
BENCH ?= bench
N ?= 2
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Tests wait for processes, timers and boards more than they compute, so two run at once. Some have
# bounds in time: what fails beside another test is run once more, alone, and must pass then.
AT_ONCE := -n 2 --dist loadgroup
ALONE := --last-failed --last-failed-no-failures none
KERAS_TESTS := tests/frontend/formats/keras/with_tensorflow

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.PHONY: help demo test test-ci test-all test-keras bench lint format docs wheel golden fuzz boards boards-down clean
.DEFAULT_GOAL := help

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; \
	do printf '  make %-11s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.test ## slice a digit classifier over three ranks, and ResNet-50 over two
	$(BIN)/rankslice demo

# Three tiers, by the marks of tests: none, ci and slow. `make test TESTS=@FILE` runs those of a list.
test: $(VENV)/.test ## run each module's tests and one real job of each kind (4 minutes on 2 cores)
	$(PYTEST) $(AT_ONCE) --durations=10 -m "not ci and not slow" $(TESTS) || $(PYTEST) $(ALONE) -m "not ci and not slow"

test-ci: $(VENV)/.test ## run what else must pass: matrices, both Open MPIs, boards, accelerators
	$(PYTEST) $(AT_ONCE) --durations=30 -m "ci and not slow" || $(PYTEST) $(ALONE) -m "ci and not slow"

test-keras: .venv-keras/.made ## run the tests that need TensorFlow, in an environment of their own
	.venv-keras/bin/python -m pytest -m "not slow" $(KERAS_TESTS)

test-all: $(VENV)/.test .venv-keras/.made ## run all tests, networks of real size and long runs too
	.venv-keras/bin/python -m pytest $(KERAS_TESTS) tests/end_to_end/test_keras_networks.py
	$(PYTEST)

bench: $(VENV)/.test ## measure channels and pipelines beside their references, with plots (15 minutes)
	$(BIN)/python benchmarks/performance.py --out $(BENCH)

lint: $(VENV)/.test $(VENV)/.dev ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict examples

format: $(VENV)/.dev ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs ## build the documentation into site/
	$(BIN)/mkdocs build --strict

wheel: $(VENV)/.dev ## build wheel and sdist into dist/, and try the wheel in an environment of its own
	rm -rf dist
	$(BIN)/python -m build
	PYTHON="$(PYTHON)" .ci/try-wheel dist/*.whl

golden: $(VENV)/.test ## write the golden folders of tests/ anew; look at the difference afterwards
	$(PYTEST) tests/test_golden.py tests/messages --regenerate-golden

fuzz: .venv-fuzz/.made ## let a fuzzer make files for each reader, FUZZ_SECONDS=60 each
	for reader in model tflite keras h5 mapping platform platform-text plan results; do \
	    .venv-fuzz/bin/python tests/fuzz/guided.py $$reader -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

boards: ## bring N virtual boards up on this machine, as root: make boards N=3
	@$(PYTHON) tests/boards needs
	@$(MAKE) --no-print-directory $(VENV)/.test
	@$(BIN)/python tests/boards up --count $(N)

boards-down: ## remove the virtual boards
	@$(PYTHON) tests/boards down

clean: ## remove what make has made
	rm -rf $(VENV) .venv-fuzz .venv-keras bench dist site

# What is installed for the tests, for development and for the documentation: one stamp each.
$(VENV)/.test $(VENV)/.dev $(VENV)/.docs: $(VENV)/.%: pyproject.toml | $(VENV)/.made
	$(BIN)/pip install --quiet --editable '.[$*]'
	touch $@

# Its fuzzer, atheris, exists for few versions of Python, and so it is no extra.
.venv-fuzz/.made: pyproject.toml
	$(PYTHON) -m venv .venv-fuzz
	.venv-fuzz/bin/pip install --quiet atheris h5py --editable .
	touch $@

.venv-keras/.made: pyproject.toml
	$(PYTHON) -m venv .venv-keras
	.venv-keras/bin/pip install --quiet --editable '.[keras,test]'
	touch $@

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed")'
	$(PYTHON) -m venv $(VENV)
	touch $@

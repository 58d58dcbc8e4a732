# Every target starts from nothing: it makes the virtual environment and installs what it needs.
#
#   make demo                    read the text of a picture with Strata, and show every level of it
#   make demo-train              train a small model with Strata, beside PyTorch; installs PyTorch
#   make test                    the test suite, without the slow tests and those that need a GPU
#   make test TORCH=1            ... with the PyTorch frontend; CONTRIBUTING.md says how to keep it small
#   make test FEATURES=avx2      ... as on a processor with these features: baseline, avx2, avx512, amx
#   make test-all                every test, once for each feature set that this processor has, and
#                                all operators on emulated processors; a GPU test skips where there is
#                                no GPU
#   make lint                    ruff and pyright
#   make docs                    write what is generated in docs/
#   make clean                   remove the environment and what was built

VENV        ?= .venv
PYTEST_ARGS ?= -n auto
DEMO_ARGS   ?=
TORCH       ?=
TORCH_ARGS  ?=
FEATURES    ?=

# The first Python that is new enough and can really make a virtual environment. It is run and not
# only looked up: a version manager's shim may exist for a version that it cannot start.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
    if "$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
        >/dev/null 2>&1; then echo "$$p"; break; fi; done)

# Alone, Triton is about 0.3 GB and compiles down to a cubin without torch or a GPU. A torch build
# for CUDA requires one exact Triton, so with TORCH=1 any supported Triton is left as it is.
TRITON ?= triton$(if $(TORCH),>=3.6$(comma)<3.10,==3.9.0); platform_system == "Linux"
comma  := ,

PIP   := $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
NEEDS := $(VENV)/.created pyproject.toml constraints.txt
TESTS := $(VENV)/.test$(if $(TORCH),-torch)

# As on a processor that has these features and no others; children of the tests, too.
ASSUMED := $(if $(FEATURES),STRATA_CPU_FEATURES=$(FEATURES))
SETS     = $(shell $(VENV)/bin/python -c \
    'from targets.cpu.machine import features_here; print(*features_here())')

# Byte code is kept, whatever the environment says: each child process of a test would compile all of
# Strata's modules again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo demo-train test test-all lint docs clean

demo: $(VENV)/.demo
	$(VENV)/bin/python -m examples.ocr $(DEMO_ARGS)

demo-train: $(VENV)/.demo-train
	$(VENV)/bin/python -m examples.training $(DEMO_ARGS)

test: $(TESTS)
	$(ASSUMED) $(VENV)/bin/python -m pytest -m "not gpu and not slow" $(PYTEST_ARGS)

test-all: $(TESTS)
	$(ASSUMED) $(VENV)/bin/python -m pytest $(PYTEST_ARGS)
	$(ASSUMED) $(VENV)/bin/python -m tests.abroad
	$(ASSUMED) $(VENV)/bin/python -m tests.abroad --open
	$(if $(FEATURES),,for set in $(SETS); do echo "as on a processor with: $$set"; \
	    STRATA_CPU_FEATURES=$$set $(VENV)/bin/python -m pytest -m "not gpu" $(PYTEST_ARGS) || exit; \
	done)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

docs: $(VENV)/.dev
	$(VENV)/bin/python -m docs.operators
	$(VENV)/bin/python -m docs.vocabulary
	$(VENV)/bin/python -m docs.pictures

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@test -n "$(PYTHON)" || { \
	    echo "Strata needs Python 3.11 or newer with its venv module; none was found."; \
	    echo "On Debian or Ubuntu:  sudo apt-get install python3 python3-venv"; \
	    echo "Or name one:          make PYTHON=/path/to/python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(NEEDS)
	$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/.demo-train: $(NEEDS)
	$(PIP) $(TORCH_ARGS) -e '.[torch]'
	@touch $@

$(TESTS): $(NEEDS)
	$(if $(TORCH),$(PIP) $(TORCH_ARGS) torch)
	$(PIP) -e '.[test]' '$(TRITON)'
	@touch $@

$(VENV)/.dev: $(NEEDS)
	$(PIP) -e '.[dev]'
	@touch $@

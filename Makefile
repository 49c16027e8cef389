# make demo   set everything up and run the main job
# make test   set everything up, lint, and run the tests
# make docs   set everything up and build the site in docs/_build/html
# make notebooks   set everything up, run the tutorials in full, write them with their outputs
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test docs notebooks lint format clean

demo: $(READY)
	$(BIN)/python scripts/demo.py

test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

notebooks: $(READY)
	$(BIN)/python scripts/run_notebooks.py

docs: $(READY)
	$(BIN)/python -m sphinx -n -W --keep-going docs docs/_build/html

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "sdesens needs Python 3.11 or newer, this is " + sys.version)'
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist docs/_build docs/tutorials out *.egg-info

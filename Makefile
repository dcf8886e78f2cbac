# make run: the demonstration · make test: the tests · make check: lint, types and tests · make clean
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: run test check lint clean

run: $(VENV)/.runtime
	$(BIN)/meannet run digits --out runs/digits --new

test: $(VENV)/.test
	$(BIN)/pytest -n 2 --dist loadfile

lint: $(VENV)/.lint
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyrefly check

check: lint test

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis

$(VENV)/.runtime: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("meannet needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=… to another.") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[report]'
	touch $@

$(VENV)/.test: $(VENV)/.runtime
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt pytest pytest-xdist pytest-timeout hypothesis build
	touch $@

$(VENV)/.lint: $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check ruff pyrefly
	touch $@

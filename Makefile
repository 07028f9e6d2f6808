# Two commands do everything on a fresh machine: `make demo` and `make test`. Both can be repeated.
PYTHON ?= python3
VENV ?= .venv
DEMO_VENV ?= .demo-venv
DEMO_OUT ?= closecall-results
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint types docs check wheel lowest clean

demo: $(DEMO_VENV)/.installed  ## install the light set, run the main job on the embedded suite, say where the report is
	$(DEMO_VENV)/bin/closecall reproduce --out $(DEMO_OUT)

test: $(VENV)/.installed  ## install the test set, run all tests
	$(VENV)/bin/python -m pytest -q -n 2 --dist loadgroup $(PYTEST_ARGS)

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.installed
	$(VENV)/bin/mypy

docs: $(VENV)/.installed
	$(VENV)/bin/mkdocs build --strict --quiet --site-dir $(or $(SITE),site)

check: test lint types docs

wheel: $(VENV)/.installed  ## a wheel of this platform and the sdist, in dist/
	CLOSECALL_REQUIRE_KERNEL=1 $(VENV)/bin/python -m hatchling build

lowest:  ## the core's tests with the lowest versions that pyproject.toml promises (needs uv)
	$(PYTHON) -m venv .lowest-venv
	$(PYTHON) -m uv pip install --quiet --python .lowest-venv --resolution lowest-direct . "pytest>=8" hypothesis pytest-xdist
	.lowest-venv/bin/python -m pytest -q -n 2 tests/test_*.py tests/theory tests/solvers tests/linear

$(VENV)/.installed: pyproject.toml constraints.txt hatch_build.py $(wildcard src/closecall/*/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP_INSTALL) -e ".[all]"
	touch $@

$(DEMO_VENV)/.installed: pyproject.toml constraints.txt hatch_build.py $(wildcard src/closecall/*/*.[ch])
	$(PYTHON) -m venv $(DEMO_VENV)
	$(DEMO_VENV)/bin/python $(PIP_INSTALL) -e ".[bench,plots]"
	touch $@

clean:
	rm -rf $(VENV) $(DEMO_VENV) .lowest-venv site build dist .mypy_cache .pytest_cache .ruff_cache

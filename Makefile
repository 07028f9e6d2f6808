# Two commands do everything on a fresh machine: `make demo` and `make test`. Both can be repeated.
PYTHON ?= python3
VENV ?= .venv
DEMO_VENV ?= .demo-venv
DEMO_OUT ?= closecall-results
# What the tests of an installed wheel need; without torch, say, its tests are skipped.
EXTRAS ?= bench,plots,torch,dask,test
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint types docs check wheel wheel-test lowest clean

demo: $(DEMO_VENV)/.installed  ## install the light set, run the main job on the embedded suite (SPLITS=25: as the paper), say where the report is
	$(DEMO_VENV)/bin/closecall reproduce --out $(DEMO_OUT) $(if $(SPLITS),--splits $(SPLITS))

# Three workers for two cores: a fifth of the time is waiting for processes. Bytecode is written, whatever the shell says:
# the tests start some two hundred of them.
test: $(VENV)/.installed  ## install the test set, run all tests
	PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest -q -n 3 --dist worksteal $(PYTEST_ARGS)

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

types: $(VENV)/.installed
	$(VENV)/bin/mypy

docs: $(VENV)/.installed
	$(VENV)/bin/mkdocs build --strict --quiet --site-dir $(or $(SITE),site)

check: test lint types docs

wheel: $(VENV)/.installed  ## a wheel of this platform and the sdist, in dist/
	CLOSECALL_REQUIRE_KERNEL=1 $(VENV)/bin/python -m hatchling build

wheel-test:  ## build the wheel and test it, installed into a new environment of PYTHON; CC=false: without a compiler
	set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; python="$$folder/venv/bin/python"; \
	$(PYTHON) -m venv "$$folder/venv"; \
	"$$python" $(PIP_INSTALL) hatchling; \
	"$$python" -m hatchling build -t wheel -d "$$folder/dist"; \
	"$$python" $(PIP_INSTALL) "$$(ls "$$folder"/dist/*.whl)[$(EXTRAS)]"; \
	"$$python" -c "import closecall, sys; print('testing', closecall.__file__); sys.exit('site-packages' not in closecall.__file__)"; \
	"$$python" -m pytest -q -p no:cacheprovider $(or $(TESTS),tests) $(PYTEST_ARGS)

lowest:  ## the core's tests with the lowest versions that pyproject.toml promises (needs uv)
	$(PYTHON) -m venv .lowest-venv
	$(PYTHON) -m uv pip install --quiet --python .lowest-venv --resolution lowest-direct ".[bench,plots]" "pytest>=8" hypothesis pytest-xdist
	.lowest-venv/bin/python -m pytest -q -n 2 tests/test_*.py tests/theory tests/solvers tests/linear reproduction/tests/test_tables.py

$(VENV)/.installed: pyproject.toml constraints.txt hatch_build.py $(wildcard src/closecall/*/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP_INSTALL) -e ".[all]"
	touch $@

$(DEMO_VENV)/.installed: pyproject.toml constraints.txt hatch_build.py $(wildcard src/closecall/*/*.[ch])
	$(PYTHON) -m venv $(DEMO_VENV)
	$(DEMO_VENV)/bin/python $(PIP_INSTALL) --no-compile -e ".[demo]"
	touch $@

clean:
	rm -rf $(VENV) $(DEMO_VENV) .lowest-venv site build dist .mypy_cache .pytest_cache .ruff_cache

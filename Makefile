# Each target creates the virtual environment that it needs; only Python 3.11+ has to be installed.
# pyproject.toml defines the steps of the targets under [tool.poe.tasks].
ifndef PYTHON
PYTHON := python3
# Prefer the distribution's interpreter, if it is new enough and complete (Debian divides it into packages): one with a
# shared library, as pyenv builds it, takes a fifth longer.
INTERPRETER := $(shell /usr/bin/python3 -c "import asyncio, ctypes, ensurepip, sqlite3, ssl, sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null && echo /usr/bin/python3)
endif
INTERPRETER := $(or $(INTERPRETER),$(PYTHON))
UV := .tools/bin/uv
RUN := $(UV) run --frozen --no-sync
# If an image forbids bytecode, each of the hundreds of processes that the tests start would compile taskmq again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test check docs release test-browser test-coverage test-properties test-matrix test-nightly faults-worker bench bench-quick clean

help:
	@echo "make demo         run the main job on real files, with an embedded broker"
	@echo "make test         run the whole gate: format, lint, imports, types, all tests, coverage of the pure rows"
	@echo "make check        run the static half of the gate"
	@echo "make docs         build the documentation as a site with search and llms.txt, into dist/docs/site"
	@echo "make release VERSION=0.2.0   run the gate, build, install on each Python, commit, tag"
	@echo "make test-browser test every page of the dashboard in a browser: hostile texts, widths, themes, axe-core"
	@echo "make test-coverage  check that the tests of one process cover at least 90 %"
	@echo "make test-properties  test 2,000 new examples of every property"
	@echo "make test-matrix  test RabbitMQ 3.10, 4.0 and 4.3, and the state on Redis 8 and Valkey"
	@echo "make test-nightly run all tests that the gate has no time for: browser, properties, matrix, small campaigns"
	@echo "make faults-worker kill, freeze, block and starve workers, at full size; takes an hour"
	@echo "make bench-quick  compare the instructions of a task with the last commit; takes 3 minutes"
	@echo "make bench        compare taskmq with its peers, into benchmarks/results; see benchmarks/README.md"

# Debian has ensurepip, which venv needs, in a separate package.
$(UV):
	@$(PYTHON) -c "import ensurepip" 2>/dev/null || \
		{ test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq python3-venv; } || \
		{ echo "$(PYTHON) has no venv: install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check "uv>=0.9"

# --inexact: the demo's smaller set must not remove packages that the tests have installed.
demo: $(UV)
	$(UV) sync --frozen --quiet --compile-bytecode --no-dev --inexact --python $(INTERPRETER)
	$(RUN) taskmq demo

# Bytecode is compiled when it is first needed: the gate imports a fifth of these modules.
.venv/dev: $(UV) pyproject.toml uv.lock
	$(UV) sync --frozen --quiet --python $(INTERPRETER)
	@touch $@

test: .venv/dev
	$(RUN) poe gate

check: .venv/dev
	$(RUN) poe check

docs: $(UV)
	$(UV) sync --frozen --quiet --group docs --inexact --python $(INTERPRETER)
	$(RUN) python -m tests.docs.site

release: test test-coverage
	$(RUN) python -m tests.packaging.release $(VERSION)

test-browser: .venv/dev
	$(RUN) poe servers
	$(RUN) poe test-browser

test-properties: .venv/dev
	$(RUN) poe test-properties

test-coverage: .venv/dev
	$(RUN) poe servers
	$(RUN) poe test-coverage

test-matrix: .venv/dev
	$(RUN) poe servers
	$(RUN) poe test-matrix

test-nightly: .venv/dev
	$(RUN) poe servers
	$(RUN) poe test-nightly

faults-worker: .venv/dev
	$(RUN) poe servers
	$(RUN) poe faults-worker

bench: .venv/dev
	$(RUN) python -m benchmarks

bench-quick: .venv/dev
	$(RUN) python -m benchmarks.quick

clean:
	rm -rf .venv .tools .coverage .coverage.* dist build

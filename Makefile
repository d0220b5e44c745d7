# Each target makes the virtual environment that it needs; nothing but Python 3.11+ has to be there.
# What the targets do is in pyproject.toml under [tool.poe.tasks].
ifndef PYTHON
PYTHON := python3
# The distribution's own interpreter runs the tests, if it is new enough and whole (Debian divides it into packages): one
# with a shared library, as pyenv builds it, needs a fifth more time for the same.
INTERPRETER := $(shell /usr/bin/python3 -c "import asyncio, ctypes, ensurepip, sqlite3, ssl, sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null && echo /usr/bin/python3)
endif
INTERPRETER := $(or $(INTERPRETER),$(PYTHON))
UV := .tools/bin/uv
RUN := $(UV) run --frozen --no-sync
# Where an image forbids bytecode, each of the hundreds of processes that the tests start would compile taskmq anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test check docs release test-browser test-coverage test-properties test-matrix test-nightly faults-worker bench bench-quick clean

help:
	@echo "make demo         the main job on real files, on an embedded broker"
	@echo "make test         the whole gate: format, lint, imports, types, all tests, coverage of the pure rows"
	@echo "make check        the static half of it"
	@echo "make docs         the documentation as a site with a search, into dist/docs/site; llms.txt beside it"
	@echo "make release VERSION=0.2.0   the gate, then built, installed on each Python, committed, tagged"
	@echo "make test-browser every page of the dashboard in a browser: hostile texts, widths, themes, axe-core"
	@echo "make test-coverage  at least 90 % of everything is run by the tests of one process"
	@echo "make test-properties  2,000 new examples of every property"
	@echo "make test-matrix  conformance and integration on RabbitMQ 3.10, 4.0 and 4.3, the state on Redis 8 and Valkey"
	@echo "make test-nightly every test that the gate has no time for: browser, properties, matrix, campaigns at small size"
	@echo "make faults-worker workers that are killed, frozen, held up, starved, at full size; takes an hour"
	@echo "make bench-quick  what a task costs in instructions, the working tree against the last commit; 3 minutes"
	@echo "make bench        taskmq beside its peers, into benchmarks/results; see benchmarks/README.md"

# Debian keeps what venv needs in a package of its own.
$(UV):
	@$(PYTHON) -c "import ensurepip" 2>/dev/null || \
		{ test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq python3-venv; } || \
		{ echo "$(PYTHON) has no venv: install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check "uv>=0.9"

# --inexact: the demo's smaller set must not take away what the tests have installed.
demo: $(UV)
	$(UV) sync --frozen --quiet --compile-bytecode --no-dev --inexact --python $(INTERPRETER)
	$(RUN) taskmq demo

.venv/dev: $(UV) pyproject.toml uv.lock
	$(UV) sync --frozen --quiet --compile-bytecode --python $(INTERPRETER)
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

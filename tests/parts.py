"""Divide the tests into parts: `pytest --part pure`, `pytest --part served`.

These two are the gate's. Every test belongs to one of them, except those that the gate runs by separate commands
(below), and those marked with one of `LATER`: these are the part `later`, which `make test-nightly` runs.

Three more overlap with them: `coverage` has the tests that one process can measure, `rabbitmq` those for each version
of RabbitMQ, and `redis` those for each server with the protocol of Redis.

`python -m tests.parts` reports the coverage of the pure part, and fails below 100 %.
"""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

PARTS: Final = ("pure", "served", "later", "coverage", "rabbitmq", "redis")
# pyproject.toml explains these markers.
LATER: Final = ("campaign", "matrix", "nightly")

_ROOT = Path(__file__).resolve().parent.parent

# Tests that mirror the pure rows of the house plan: the branch coverage of their calls is measured.
_PURE = (
    "tests/unit/injection",
    "tests/unit/local/rules",
    "tests/unit/model",
    "tests/unit/options",
    "tests/unit/rabbitmq/model",
    "tests/unit/reactions",
    "tests/unit/schedules",
    "tests/unit/scheduler/fairness",
    "tests/unit/scheduler/placement",
    "tests/unit/test_durations.py",
    "tests/unit/test_errors.py",
    "tests/unit/workflow",
    "tests/conformance/test_states.py::TestMemory",
)

# These cover at least 90 % of all code, in the processes of the tests.
_COVERING = (
    "tests/unit",
    "tests/cli",
    "tests/conformance/test_job_stores.py::TestSqlite",
    "tests/conformance/test_rabbitmq.py::TestRabbitMQ",
    "tests/conformance/test_states.py::TestRedis",
    "tests/conformance/test_states.py::TestMemory",
)

_OF_SERVERS = ("tests/conformance", "tests/integration")

# Separate commands run tests with these markers: `poe test-properties` and `poe test-browser`.
_NOT_LATER = ("tests/unit", "tests/dashboard")

# `poe house` and `poe test-newest` run these.
_ELSEWHERE = ("tests/house", "tests/integration/test_rabbitmq_deleted_topology.py")


def is_left_out(path: Path, part: str) -> bool:
    """Whether nothing below a path belongs to a part, so that it need not be imported."""
    name = path.relative_to(_ROOT).as_posix()
    match part:
        case "served":
            return _is_in(name, (*_ELSEWHERE, *(each for each in _PURE if "::" not in each)))
        case "later":
            return _is_in(name, _NOT_LATER)
        case _:
            chosen = {"pure": _PURE, "coverage": _COVERING, "rabbitmq": _OF_SERVERS, "redis": _OF_SERVERS}[part]
            return not any(_is_in(name, (where,)) or _is_in(where, (name,)) for where in _files(chosen))


def belongs(item: pytest.Item, part: str) -> bool:
    """Whether a test of a collected file belongs to a part."""
    marked = {name for name in LATER if item.get_closest_marker(name)}
    match part:
        case "later":
            return bool(marked)
        case "rabbitmq":
            return "matrix" not in marked and item.get_closest_marker("rabbitmq") is not None
        case "redis":
            return marked <= {"nightly"} and _needs_redis(item)
        case "coverage":
            return not marked and _is_in(item.nodeid, _COVERING)
        case _:
            return not marked and _is_in(item.nodeid, _PURE) is (part == "pure")


def _needs_redis(item: pytest.Item) -> bool:
    fixtures = item.fixturenames if isinstance(item, pytest.Function) else ()
    return any("redis" in name.lower() for name in (item.nodeid, *fixtures))


def _files(where: tuple[str, ...]) -> list[str]:
    return [each.partition("::")[0] for each in where]


def _is_in(name: str, where: tuple[str, ...]) -> bool:
    """Whether a path or a test is one of these, or below one of them."""
    return any(name == each or name.startswith((f"{each}/", f"{each}::")) for each in where)


def pure_modules() -> list[str]:
    """Return the packages and modules that the import contract calls pure."""
    config = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (pure,) = [each for each in config["contracts"] if each["name"].startswith("Pure")]
    return [*pure["source_modules"]]


def _files_of(module: str) -> str:
    """Return the files of a module in the notation of coverage."""
    inside = module.replace(".", "/")
    (found,) = [
        path
        for folder in ("", "brokers/", "contrib/")
        for path in (_ROOT / f"{folder}{inside}", _ROOT / f"{folder}{inside}.py")
        if path.exists()
    ]
    name = found.relative_to(_ROOT).as_posix()
    return f"{name}/*" if found.is_dir() else name


if __name__ == "__main__":
    files = ",".join(map(_files_of, pure_modules()))
    report = ["coverage", "report", "--skip-covered", "--fail-under=100", f"--include={files}"]
    sys.exit(subprocess.run(report, cwd=_ROOT, check=False).returncode)

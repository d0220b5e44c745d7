"""Divide the tests into the parts of the gate: `pytest --part pure`, `pytest --part served`.

Every test belongs to one part, except those marked `campaign` or `matrix`, which `make test-nightly` runs, and those
that the gate runs by commands of their own (below).

`python -m tests.parts` reports what the pure part covered, and fails below 100 %.
"""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

PARTS: Final = ("pure", "served")

_ROOT = Path(__file__).resolve().parent.parent

# Tests that mirror the pure rows of the house plan: their branch coverage is measured, which doubles what they cost.
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
    "tests/conformance/test_job_stores.py::TestMemory",
    "tests/conformance/test_states.py::TestMemory",
)

# `poe house` and `poe test-newest` run these.
_ELSEWHERE = ("tests/house", "tests/integration/test_rabbitmq_deleted_topology.py")


def is_left_out(path: Path, part: str) -> bool:
    """Whether nothing below a path belongs to a part, so that it need not be imported."""
    name = path.relative_to(_ROOT).as_posix()
    if part == "served":
        return _is_in(name, (*_ELSEWHERE, *(each for each in _PURE if "::" not in each)))
    return not any(_is_in(name, (where,)) or _is_in(where, (name,)) for where in _files(_PURE))


def belongs(item: pytest.Item, part: str) -> bool:
    """Whether a test of a collected file belongs to a part."""
    if any(item.get_closest_marker(name) for name in ("campaign", "matrix")):
        return False
    return _is_in(item.nodeid, _PURE) is (part == "pure")


def _files(where: tuple[str, ...]) -> list[str]:
    return [each.partition("::")[0] for each in where]


def _is_in(name: str, where: tuple[str, ...]) -> bool:
    """Whether a path or a test is one of these, or below one of them."""
    return any(name == each or name.startswith((f"{each}/", f"{each}::")) for each in where)


def measured() -> list[str]:
    """The files that the import contract calls pure, as coverage is asked for them."""
    config = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (pure,) = [each for each in config["contracts"] if each["name"].startswith("Pure")]
    return [_files_of(name) for name in pure["source_modules"]]


def _files_of(module: str) -> str:
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
    report = ["coverage", "report", "--skip-covered", "--fail-under=100", f"--include={','.join(measured())}"]
    sys.exit(subprocess.run(report, cwd=_ROOT, check=False).returncode)

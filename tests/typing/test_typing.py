"""Type checks of the other files of this folder by mypy and basedpyright, as in `make check`.

Valid code must pass unchanged; invalid code has an ignore for each checker, and both report a superfluous one: an
accepted wrong call fails there. These tests check that neither omits the files.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def tools() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]
    return found


def test_mypy_is_strict_with_the_files_of_this_folder(tools: dict[str, Any]) -> None:
    mypy = tools["mypy"]

    assert "tests" in mypy["files"]
    assert mypy["strict"] is True
    assert {"exclude", "warn_unused_ignores", "ignore_errors"}.isdisjoint(mypy)
    assert not any(module.startswith("tests") for part in mypy["overrides"] for module in part["module"])


def test_basedpyright_is_strict_with_the_files_of_this_folder(tools: dict[str, Any]) -> None:
    pyright = tools["pyright"]
    (here, *_) = pyright["executionEnvironments"]

    assert "tests/typing" in pyright["include"]
    assert {"exclude", "ignore"}.isdisjoint(pyright)
    assert pyright["typeCheckingMode"] == "strict"
    assert here["root"] == "tests/typing"
    assert here["enableTypeIgnoreComments"] is False
    assert here["reportUnnecessaryTypeIgnoreComment"] == "error"


def test_the_gate_runs_both(tools: dict[str, Any]) -> None:
    tasks = tools["poe"]["tasks"]

    assert {"mypy", "basedpyright"} <= set(tasks["check"]["parallel"])
    assert [tasks[name]["cmd"] for name in ("mypy", "basedpyright")] == ["mypy", "basedpyright"]

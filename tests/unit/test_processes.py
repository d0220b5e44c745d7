"""Crashes and broken fixtures in the processes of `pytest --processes`, and the order of their tests."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.docs.blocks import ROOT
from tests.processes import Units

_CONFTEST = """
from tests.processes import Distribution

def pytest_configure(config):
    config.pluginmanager.register(Distribution(2))
"""
_CRASH = """
import os, signal

import pytest

@pytest.fixture(scope="module")
def shared():
    return os.getpid()

@pytest.mark.parametrize("number", range(3))
def test_passes(shared, number): ...

def test_exits(shared):
    os._exit(3)

def test_after_the_exit(shared): ...

def test_fails(capsys):
    print("what a test prints")
    assert False
"""
_KILL = """
import os, signal

def test_passes(): ...

def test_kills_itself():
    os.kill(os.getpid(), signal.SIGKILL)
"""
_BROKEN = """
import pytest

@pytest.fixture(scope="session")
def broken():
    yield
    raise ValueError("not closed")

def test_passes(broken): ...
"""


def _run(folder: Path, **modules: str) -> subprocess.CompletedProcess[str]:
    for name, text in {"conftest": _CONFTEST, **modules}.items():
        (folder / f"{name}.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", str(folder)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_a_crash_fails_its_test_and_all_others_run(tmp_path: Path) -> None:
    done = _run(tmp_path, test_crash=_CRASH, test_kill=_KILL)

    assert done.returncode == 1
    assert "3 failed, 5 passed" in done.stdout
    assert "test_crash.py::test_exits - its process ended with 3" in done.stdout
    assert "test_kill.py::test_kills_itself - its process ended with -9" in done.stdout
    assert "what a test prints" in done.stdout


def test_an_error_at_the_end_of_a_process_fails_the_run(tmp_path: Path) -> None:
    done = _run(tmp_path, test_broken=_BROKEN)

    assert done.returncode == 3
    assert "ValueError: not closed" in done.stderr


class _Item:
    path = ROOT / "tests" / "__init__.py"

    def __init__(self, name: str, *markers: str) -> None:
        self.nodeid = name
        self._markers = markers

    def get_closest_marker(self, name: str) -> bool | None:
        return name in self._markers or None


def test_a_process_without_a_node_begins_tests_that_need_one_last() -> None:
    items: list[Any] = [_Item("a"), _Item("b", "rabbitmq"), _Item("c"), _Item("d", "rabbitmq")]

    assert _take_all(Units(items), has_node=False) == [[0], [2], [1], [3]]
    assert _take_all(Units(items), has_node=True) == [[1], [3], [0], [2]]


def _take_all(units: Units, *, has_node: bool) -> list[list[int]]:
    return list(iter(lambda: units.take(has_node=has_node), []))

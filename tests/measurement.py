"""Coverage of tests: which calls are measured.

Measuring doubles the time of all Python code, pytest and hypothesis included. In the pure part, coverage therefore
measures the imports of the pure modules and the calls of tests. It does not measure collection, fixtures and
properties: examples alone have to take every branch. Simulations are not measured in any part.
"""

import importlib
import pkgutil
import sys
from collections.abc import Generator, Sequence

import pytest


class Measurement:
    """Starts and stops the measurement, which `coverage run` has started, around the calls of tests."""

    def __init__(self, pure_modules: Sequence[str]) -> None:
        """Measure calls and these modules alone; without modules, everything except simulations."""
        self._trace = sys.gettrace()
        self._is_pure = bool(pure_modules)
        if pure_modules:
            for name in pure_modules:
                _import_all(name)
            sys.settrace(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        before = sys.gettrace()
        sys.settrace(self._trace if self._is_measured(item) else None)
        try:
            return (yield)
        finally:
            sys.settrace(before)

    def _is_measured(self, item: pytest.Item) -> bool:
        if item.get_closest_marker("simulation") is not None:
            return False
        return not (self._is_pure and hasattr(getattr(item, "obj", None), "hypothesis"))


def _import_all(name: str) -> None:
    """Import a module and, if it is a package, all modules below it."""
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
        importlib.import_module(found.name)

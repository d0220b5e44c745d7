"""The first test of a process reads the whole tree, and builds its graph of imports."""

from pathlib import Path

import pytest

_SECONDS = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On a machine that does other things, that takes more than the usual minute."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(_SECONDS))

"""The first test of a process reads the whole tree, and builds its graph of imports."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow more than the usual minute, since these tests run at a low priority beside servers."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(_SECONDS))


@pytest.fixture(autouse=True)
def _trees_stay() -> Iterator[None]:
    """Exclude the trees from the collector: millions of permanent nodes, which it would scan again and again."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()

"""The demo's measurements of source files."""

import gc
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from taskmq.demo.measure import measure


class _Cycle:
    """Garbage whose collection runs Python code, during which another thread may continue."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(200):
            pass


@pytest.fixture
def frequent_turns() -> Iterator[None]:
    """Collect garbage often, and let threads take short turns."""
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("frequent_turns")
def test_threads_measure_files_at_the_same_time() -> None:
    def count_lines(_: int) -> int:
        _Cycle()
        return measure(Path(os.__file__)).lines

    with ThreadPoolExecutor(4) as threads:
        lines = set(threads.map(count_lines, range(40)))

    assert len(lines) == 1

"""Facts about processes that the benchmarks read from the kernel."""

import os

from benchmarks.processes import cpu_seconds, peak_mb, proportional_mb, resident_mb, tree

_US = [os.getpid()]
# More than a process may be given.
_NOBODY = [2**22 + 1]


def test_shared_pages_are_split_and_the_total_never_undercounts() -> None:
    assert 0 < proportional_mb(_US) <= resident_mb(_US) * 1.05
    assert peak_mb(_US) >= resident_mb(_US) * 0.95


def test_an_ended_process_uses_no_memory_and_no_cpu() -> None:
    assert resident_mb(_NOBODY) == proportional_mb(_NOBODY) == peak_mb(_NOBODY) == cpu_seconds(_NOBODY) == 0.0


def test_a_process_tree_includes_its_root() -> None:
    assert set(_US) <= tree(_US)

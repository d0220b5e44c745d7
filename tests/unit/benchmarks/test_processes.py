"""What the benchmarks ask the kernel of processes."""

import os

from benchmarks.processes import cpu_seconds, peak_mb, proportional_mb, resident_mb, tree

_US = [os.getpid()]
# Above what a process may be given.
_NOBODY = [2**22 + 1]


def test_a_page_that_is_shared_is_split_and_no_process_was_ever_smaller_than_it_is() -> None:
    assert 0 < proportional_mb(_US) <= resident_mb(_US) * 1.05
    assert peak_mb(_US) >= resident_mb(_US) * 0.95


def test_a_process_that_is_gone_holds_nothing_and_has_used_nothing() -> None:
    assert resident_mb(_NOBODY) == proportional_mb(_NOBODY) == peak_mb(_NOBODY) == cpu_seconds(_NOBODY) == 0.0


def test_a_tree_has_its_root() -> None:
    assert set(_US) <= tree(_US)

"""The cached quotas of a process."""

from typing import Any, cast

import pytest

from taskmq_sql.settings import KnownQuotas
from tests.unit.store_kit import at_once


class _SlowRunner:
    """A runner whose reads of a missing setting take 0.9 s of a fake clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reads = 0

    async def read(self, work: object) -> None:
        self.now += 0.9
        self.reads += 1


def test_cached_quotas_are_a_second_old_at_most_if_their_read_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = _SlowRunner()
    monkeypatch.setattr("time.monotonic", lambda: runner.now)
    known = KnownQuotas(cast("Any", runner))
    for _ in range(2):
        at_once(known.current())
    assert runner.reads == 1

    runner.now += 0.2
    at_once(known.current())

    assert runner.reads == 2

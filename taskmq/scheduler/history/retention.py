"""Retention of the history of runs: log lines by level, everything else for a month."""

from typing import Final

from taskmq.contracts.history import Remembering
from taskmq.contracts.jobs import JobStore
from taskmq.model.history.logs import KEPT_DAYS
from taskmq.model.units import DAY_MS

_KEPT: Final = 30
_TOGETHER: Final = 1_000


async def forget_old(store: JobStore, *, kept_days: int = _KEPT) -> None:
    """Delete history older than its retention, in batches.

    Raises:
        StoreUnavailable: the store could not be reached; some may have been deleted.
    """
    now = await store.now_ms()
    await store.bulks.forget(before=now - kept_days * DAY_MS)
    if not isinstance(store, Remembering):
        return
    history = store.history
    for level, days in KEPT_DAYS.items():
        while await history.logs.forget(level=level, before=now - days * DAY_MS, limit=_TOGETHER) == _TOGETHER:
            pass
    before = now - kept_days * DAY_MS
    while await history.rollups.forget(before=before, limit=_TOGETHER) >= _TOGETHER:
        pass
    while await history.depths.forget(before=before, limit=_TOGETHER) == _TOGETHER:
        pass
    while await history.versions.forget(before=before, limit=_TOGETHER) == _TOGETHER:
        pass
    while await history.sent_jobs.forget(before=before, limit=_TOGETHER) == _TOGETHER:
        pass
    await history.failures.forget(before=before)
    await history.alerts.forget(before=before)

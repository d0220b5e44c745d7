"""Estimates of when a ready job of the store will start."""

from datetime import datetime
from typing import Final

import msgspec

from taskmq.contracts.history import RollupFilter, history_of
from taskmq.contracts.jobs import JobRecord, JobStore
from taskmq.errors import UnsupportedFeature
from taskmq.model.history.rollups import MINUTE, minute_of
from taskmq.model.jobs.pools import FAIR
from taskmq.model.units import to_datetime
from taskmq.stored_jobs.explanations.expected_starts import MINUTES, EndedRuns, expect_start

# Workers report their figures with this delay.
_LATE: Final = 15_000
_MOST_FIGURES: Final = 20_000


class StartEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The expected start of a job, from its queue's last half hour.

    Attributes:
        position: number of jobs that start before it if no new ones come, plus one.
        earliest, latest: nine of ten jobs start between them if the queue goes on as it did.
    """

    position: int
    earliest: datetime
    likely: datetime
    latest: datetime


async def estimate_start(store: JobStore, record: JobRecord, *, now: int, at_broker: int) -> StartEstimate | None:
    """Estimate when a ready job starts; None if its queue's figures do not tell.

    Args:
        now: the store's time in ms.
        at_broker: jobs of the queue that wait at the broker.

    Raises:
        StoreUnavailable: the store could not be reached.
    """
    sharing = await store.sharing()
    policy = sharing.queues.get(record.queue, FAIR)
    rise = round(policy.ageing * 1000) if policy.policy == "priority" and not policy.strict else 0
    lanes = await store.dispatching.waiting_lanes(record, rise=rise)
    own = next((lane for lane in lanes if lane[:2] == (record.priority, record.tenant)), None)
    if own is None:
        return None
    until = minute_of(now - _LATE)
    which = RollupFilter(since=until - MINUTES * MINUTE, until=until, queue=record.queue)
    try:
        figures = await history_of(store).rollups.rollups(which, limit=_MOST_FIGURES)
    except UnsupportedFeature:
        return None
    if len(figures) == _MOST_FIGURES:
        return None
    minutes: list[dict[str, EndedRuns]] = [{} for _ in range(MINUTES)]
    for each in figures:
        found = minutes[(until - each.key.minute) // MINUTE - 1]
        before = found.get(each.key.tenant, EndedRuns(0, 0.0))
        found[each.key.tenant] = EndedRuns(before.runs + each.ran.count, before.seconds + each.ran.total)
    expected = expect_start(policy, sharing.pools, lanes, own, minutes, at_broker=at_broker)
    if expected is None:
        return None
    earliest, likely, latest = (
        to_datetime(now + round(seconds * 1000)) for seconds in (expected.earliest, expected.likely, expected.latest)
    )
    return StartEstimate(
        position=round(expected.before) + at_broker + 1, earliest=earliest, likely=likely, latest=latest
    )

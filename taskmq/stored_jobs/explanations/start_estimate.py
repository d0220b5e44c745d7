"""Estimates of when a ready job of the store will start, and of what would start it earlier."""

from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from taskmq.contracts.history import RollupFilter, history_of
from taskmq.contracts.jobs import JobRecord, JobStore
from taskmq.errors import UnsupportedFeature
from taskmq.model.history.rollups import MINUTE, minute_of
from taskmq.model.jobs.pools import FAIR
from taskmq.model.units import count_text
from taskmq.stored_jobs.explanations.alternatives import Alternative, AlternativeKind, describe_earlier
from taskmq.stored_jobs.explanations.expected_starts import (
    MINUTES,
    EndedRuns,
    ExpectedStart,
    StartEstimate,
    expect_start,
    raise_job,
)

# Workers report their figures with this delay.
_LATE: Final = 15_000
_MOST_FIGURES: Final = 20_000
_HIGHEST_PRIORITY: Final = 9


class Outlook(NamedTuple):
    """The expected start of a job, and what would start it earlier."""

    start: StartEstimate
    alternatives: list[Alternative]


async def estimate_start(
    store: JobStore, record: JobRecord, *, now: int, at_broker: int, reader: str | None
) -> Outlook | None:
    """Estimate when a ready job starts; None if its queue's figures do not tell.

    Args:
        now: the store's time in ms.
        at_broker: jobs of the queue that wait at the broker.
        reader: the tenant that asks, which cannot start workers; None: an operator.

    Raises:
        StoreUnavailable: the store could not be reached.
    """
    sharing = await store.sharing()
    policy = sharing.queues.get(record.queue, FAIR)
    rise = round(policy.ageing * 1000) if policy.policy == "priority" and not policy.strict else 0
    lanes = await store.dispatching.waiting_lanes(record, rise=rise)
    own = next((lane for lane in lanes if lane[:2] == (record.priority, record.tenant)), None)
    minutes = None if own is None else await _read_minutes(store, record.queue, now)
    if own is None or minutes is None:
        return None
    expect = partial(expect_start, policy, sharing.pools, minutes=minutes, at_broker=at_broker)
    if (expected := expect(lanes, own)) is None:
        return None
    start = expected.to_estimate(now, at_broker)

    def compare(kind: AlternativeKind, action: str, expected: ExpectedStart | None) -> list[Alternative]:
        earlier = None if expected is None else expected.to_estimate(now, at_broker)
        return describe_earlier(kind, action, earlier, than=start, now=now)

    found: list[Alternative] = []
    if policy.policy != "fifo" and record.priority < _HIGHEST_PRIORITY:
        highest = replace(record, priority=_HIGHEST_PRIORITY)
        others = await store.dispatching.waiting_lanes(highest, rise=rise) if rise else lanes
        action = f"raise its priority from {record.priority} to {_HIGHEST_PRIORITY}"
        raised = expect(*raise_job(others, own, _HIGHEST_PRIORITY)) if others else None
        found += compare("priority", action, raised)
    workers = await store.nodes.workers() if reader is None else []
    if slots := min((each.slots for each in workers if record.queue in each.queues), default=0):
        action = f"start one more worker of {count_text(slots, 'slot')} for queue {record.queue!r}"
        found += compare("slots", action, expect(lanes, own, more_slots=slots))
    return Outlook(start, found)


async def _read_minutes(store: JobStore, queue: str, now: int) -> list[dict[str, EndedRuns]] | None:
    """Return what ended of the queue, by tenant, in each of the last minutes; None if there are too many figures."""
    until = minute_of(now - _LATE)
    which = RollupFilter(since=until - MINUTES * MINUTE, until=until, queue=queue)
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
    return minutes

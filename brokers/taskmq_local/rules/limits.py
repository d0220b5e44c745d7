"""Rules of limits. Instants and durations are seconds; the algorithm does not depend on where records are kept.

Each limit has a line of refused jobs with promised instants. A job that comes at its instant gets the next free
permit. Other jobs only get what the jobs with near instants leave. So a permit is never kept for a job that does not
come, and newcomers never pass punctual jobs. If a punctual job finds no permit, it gets a new instant, behind only
the jobs that were in the line before it.

The Redis adapter has the same algorithm in the script `ENTER_LIMITS`.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from taskmq.contracts.stores import Demand, LimitEntry, PlaceDemand, RateDemand

LAPSE: Final = 600.0
"""Time for which a job keeps its position in the line after its instant."""

FORGOTTEN: Final = 3600.0
"""Time for which an unused limit is remembered."""

# Starts may be this far ahead of an even rate.
_SLACK: Final = 0.25
# If jobs wait, unused starts of the last second are made up for, at a rate higher by a quarter.
_MISSED: Final = 1.0
_HURRY: Final = 0.8
# From this many seconds between starts on, a free start is reserved for a moment.
_SLOW: Final = 1.0
# After this, a promised job is not waited for.
_GRACE: Final = 2.0
# A job that comes this much early still counts as punctual.
_EARLY: Final = 0.25
_LONGEST_LINE: Final = 10_000
_LONGEST_WAIT: Final = 900.0
# Rather too short: an early job asks again, but a late one leaves a permit unused.
_UNKNOWN_RUN: Final = 0.1
# Durations of runs may change: no job that waits for a permit sleeps longer.
_LONGEST_SLEEP: Final = 120.0
_SHORTEST_LOOK: Final = 0.1
_LONGEST_LOOK: Final = 2.0
# Slightly more jobs come than there are permits, so that early ends are used.
_EAGERNESS: Final = 0.9
_SHOWN: Final = 16
# Sums of intervals are not exact.
_TINY: Final = 1e-6


class LimitRecord(Protocol):
    """The stored record of one limit.

    Attributes:
        arrival: the instant of the next even start, ignoring bursts.
        peak: the same at a rate higher by a quarter, at which missed starts are made up for.
        spill: the latest instant given to a job that found no room in the line.
        average: average duration of holding a permit; 0 if unknown.
        last: the instant of the last grant of a permit.
    """

    arrival: float
    peak: float
    spill: float
    average: float
    last: float

    def promise_of(self, job_id: str) -> float | None: ...

    def waiting(self) -> int:
        """Count the jobs in the line."""
        ...

    def count(self, since: float, before: float) -> int:
        """Count the jobs promised an instant from `since` on and before `before`."""
        ...

    def rank(self, job_id: str, since: float) -> int:
        """Count the jobs ahead of this one in the line, without those promised an instant before `since`."""
        ...

    def promise(self, job_id: str, instant: float) -> None:
        """Append the job to the line, or change its promised instant."""
        ...

    def forget(self, job_id: str) -> None: ...

    def holds(self) -> list[str]:
        """Return the present holders of permits."""
        ...

    def hold(self, hold: str, until: float) -> None: ...


class _Grant(msgspec.Struct):
    """Answer of one limit: when the run may begin, or when to ask again."""

    granted: bool
    at: float
    is_new: bool = False


def acquire(
    job_id: str,
    demands: Sequence[tuple[Demand, LimitRecord]],
    *,
    hold: str,
    seconds: float,
    patience: float,
    now: float,
) -> LimitEntry:
    """Implement `LimitStore.acquire`. The records must contain nothing that has lapsed."""
    if any(isinstance(demand, PlaceDemand) and hold in record.holds() for demand, record in demands):
        # The answer to an earlier call was lost; it may have been to wait.
        is_strict = any(isinstance(demand, RateDemand) and demand.strict for demand, _ in demands)
        return LimitEntry(granted=True, wait=patience if is_strict else 0.0)
    answers = [
        _try_start(job_id, demand, record, now, patience)
        if isinstance(demand, RateDemand)
        else _try_permit(job_id, demand, record, now)
        for demand, record in demands
    ]
    if all(answer.granted for answer in answers):
        start = max(answer.at for answer in answers)
        for demand, record in demands:
            record.forget(job_id)
            if isinstance(demand, RateDemand) and demand.strict:
                record.arrival = max(record.arrival, start) + demand.interval
                record.peak = record.arrival
            elif isinstance(demand, RateDemand):
                missed = _MISSED if record.count(now - _GRACE, float("inf")) > 0 else 0.0
                record.arrival = max(record.arrival, now - missed) + demand.interval
                record.peak = max(record.peak, now) + demand.interval * _HURRY
            else:
                record.hold(hold, now + seconds)
                record.last = now
        return LimitEntry(granted=True, wait=max(0.0, start - now))
    latest, key = now, ""
    holds: tuple[str, ...] = ()
    for (demand, record), answer in zip(demands, answers, strict=True):
        if answer.granted:
            continue
        if answer.is_new:
            answer.at = _join_line(job_id, demand, record, answer.at)
        if isinstance(demand, PlaceDemand):
            answer.at = min(answer.at, now + _LONGEST_SLEEP)
        if answer.at > latest:
            latest, key = answer.at, demand.key
            holds = tuple(record.holds()[:_SHOWN]) if isinstance(demand, PlaceDemand) else ()
    return LimitEntry(granted=False, wait=min(latest - now, _LONGEST_WAIT), key=key, holds=holds)


def mean(average: float, held: float) -> float:
    """Return the average updated by one run."""
    return held if average == 0 else average * 0.8 + held * 0.2


def _try_start(job_id: str, demand: RateDemand, record: LimitRecord, now: float, patience: float) -> _Grant:
    tolerance = (demand.burst - 1) * demand.interval + (0.0 if demand.strict else _SLACK)
    earliest = max(now, record.arrival - tolerance, record.peak - tolerance)
    promised = record.promise_of(job_id)
    kept = min(_GRACE, demand.interval / 2) if demand.interval >= _SLOW else 0.0
    if record.arrival + kept <= now and earliest <= now:
        # Otherwise unused: no promised job came for it.
        return _Grant(granted=True, at=now)
    if promised is None:
        at = earliest + record.count(now - _GRACE, float("inf")) * demand.interval
        return _Grant(at <= now + patience + _TINY, at, is_new=True)
    is_due = promised <= now + max(_EARLY, patience)
    if is_due and earliest <= now + patience + _TINY:
        return _Grant(granted=True, at=earliest)
    at = earliest + record.rank(job_id, now - _GRACE) * demand.interval
    if not is_due and promised <= at:
        return _Grant(granted=False, at=promised)
    return _Grant(granted=False, at=at, is_new=True)


def _try_permit(job_id: str, demand: PlaceDemand, record: LimitRecord, now: float) -> _Grant:
    free = demand.places - len(record.holds())
    promised = record.promise_of(job_id)
    is_due = promised is not None and promised <= now + _EARLY
    average = record.average or _UNKNOWN_RUN
    if is_due:
        if free > 0:
            return _Grant(granted=True, at=now)
    elif free > 0:
        # A short run may go first if it ends before the promised jobs come.
        before = record.count(now - _GRACE, now + average)
        if promised is not None and promised < now + average:
            before -= 1
        if free > before:
            return _Grant(granted=True, at=now)
    if free <= 0:
        # The present runs take longer than earlier ones.
        average = max(average, min(now - record.last, LAPSE))
    share = average / demand.places
    first = min(max(share / 2, _SHORTEST_LOOK), _LONGEST_LOOK)
    since = now - _GRACE
    rank = record.count(since, float("inf")) if promised is None else record.rank(job_id, since)
    at = now + first + rank * share * _EAGERNESS
    if promised is not None and not is_due and promised <= at:
        return _Grant(granted=False, at=promised)
    return _Grant(granted=False, at=at, is_new=True)


def _join_line(job_id: str, demand: Demand, record: LimitRecord, at: float) -> float:
    if record.promise_of(job_id) is not None or record.waiting() < _LONGEST_LINE:
        record.promise(job_id, at)
        return at
    step = demand.interval if isinstance(demand, RateDemand) else (record.average or _UNKNOWN_RUN) / demand.places
    record.spill = max(record.spill, at) + step
    return record.spill

"""How limits grant and refuse. Instants and times are seconds; one algorithm, whatever keeps the records.

A limit has a line: jobs that were refused, and the instants that they were promised. Who keeps its promise is let in
as soon as there is anything to be had, others only behind those whose instants are near. So what is free is never
kept for a job that does not come, and those who come in time are not passed by newcomers. A job that finds nothing
although it is in time is promised a new instant, behind those only that were in the line before it.

The twin of this is the script `ENTER_LIMITS` of the adapter for Redis.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from taskmq.contracts.stores import Demand, LimitEntry, PlaceDemand, RateDemand

__all__ = ["FORGOTTEN", "LAPSE", "LimitRecord", "enter", "mean"]

LAPSE: Final = 600.0
"""How long after its instant a job's place in a line is kept."""

FORGOTTEN: Final = 3600.0
"""How long a limit is remembered that does not matter any more."""

# So far ahead of an even rate starts may be.
_SLACK: Final = 0.25
# Of the starts that went unused although jobs wait, those of the last second are made up for, a quarter
# faster than the rate.
_MISSED: Final = 1.0
_HURRY: Final = 0.8
# Seconds between starts from which on one that is free is kept for a moment.
_SLOW: Final = 1.0
# After that a promised one is not waited for.
_GRACE: Final = 2.0
# A promise is kept by who comes this much early.
_EARLY: Final = 0.25
_LONGEST_LINE: Final = 10_000
_LONGEST_WAIT: Final = 900.0
# Rather too short: a job that is early asks again, one that is late has left a place empty.
_UNKNOWN_RUN: Final = 0.1
# How long runs take may change: no job that waits for a place sleeps for longer than that.
_LONGEST_SLEEP: Final = 120.0
_SHORTEST_LOOK: Final = 0.1
_LONGEST_LOOK: Final = 2.0
# More of those who wait come than there is room for: what ends early is not left empty.
_EAGERNESS: Final = 0.9
_SHOWN: Final = 16
# Sums of intervals are not exact.
_TINY: Final = 1e-6


class LimitRecord(Protocol):
    """One limit as it is kept.

    Attributes:
        arrival: from when on the next start would be on time, had there been no bursts.
        peak: the same of a rate that is a quarter higher, at which what was missed is made up for.
        spill: when the last is to come for whom there was no room in the line.
        average: of the time for which places are held; 0 where none was.
        last: when a place was granted last.
    """

    arrival: float
    peak: float
    spill: float
    average: float
    last: float

    def promised(self, job_id: str) -> float | None: ...

    def waiting(self) -> int:
        """How many are in the line."""
        ...

    def count(self, since: float, before: float) -> int:
        """How many were promised an instant from `since` on, and before `before`."""
        ...

    def rank(self, job_id: str, since: float) -> int:
        """How many came into the line before this one, without those who were promised an instant before `since`."""
        ...

    def promise(self, job_id: str, instant: float) -> None:
        """Give it a place at the end of the line, or another instant."""
        ...

    def forget(self, job_id: str) -> None: ...

    def holds(self) -> list[str]:
        """Return the jobs that have places now."""
        ...

    def hold(self, hold: str, until: float) -> None: ...


class _Grant(msgspec.Struct):
    """Of one limit: when the run may begin, or is to be looked at again."""

    granted: bool
    at: float
    is_new: bool = False


def enter(
    job_id: str,
    demands: Sequence[tuple[Demand, LimitRecord]],
    *,
    hold: str,
    seconds: float,
    patience: float,
    now: float,
) -> LimitEntry:
    """See `LimitStore.enter`. The records hold nothing any more that has lapsed."""
    if any(isinstance(demand, PlaceDemand) and hold in record.holds() for demand, record in demands):
        # The answer to an earlier call was lost; it may have said to wait.
        is_strict = any(isinstance(demand, RateDemand) and demand.strict for demand, _ in demands)
        return LimitEntry(granted=True, wait=patience if is_strict else 0.0)
    answers = [
        _rate(job_id, demand, record, now, patience)
        if isinstance(demand, RateDemand)
        else _place(job_id, demand, record, now)
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
            answer.at = _line_up(job_id, demand, record, answer.at)
        if isinstance(demand, PlaceDemand):
            answer.at = min(answer.at, now + _LONGEST_SLEEP)
        if answer.at > latest:
            latest, key = answer.at, demand.key
            holds = tuple(record.holds()[:_SHOWN]) if isinstance(demand, PlaceDemand) else ()
    return LimitEntry(granted=False, wait=min(latest - now, _LONGEST_WAIT), key=key, holds=holds)


def mean(average: float, held: float) -> float:
    """The average with one run more."""
    return held if average == 0 else average * 0.8 + held * 0.2


def _rate(job_id: str, demand: RateDemand, record: LimitRecord, now: float, patience: float) -> _Grant:
    tolerance = (demand.burst - 1) * demand.interval + (0.0 if demand.strict else _SLACK)
    earliest = max(now, record.arrival - tolerance, record.peak - tolerance)
    promised = record.promised(job_id)
    kept = min(_GRACE, demand.interval / 2) if demand.interval >= _SLOW else 0.0
    if record.arrival + kept <= now and earliest <= now:
        # No job came for it, and it would be lost.
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


def _place(job_id: str, demand: PlaceDemand, record: LimitRecord, now: float) -> _Grant:
    free = demand.places - len(record.holds())
    promised = record.promised(job_id)
    is_due = promised is not None and promised <= now + _EARLY
    average = record.average or _UNKNOWN_RUN
    if is_due:
        if free > 0:
            return _Grant(granted=True, at=now)
    elif free > 0:
        # A short run may go before those who come later than it would end.
        before = record.count(now - _GRACE, now + average)
        if promised is not None and promised < now + average:
            before -= 1
        if free > before:
            return _Grant(granted=True, at=now)
    if free <= 0:
        # Longer than those before it.
        average = max(average, min(now - record.last, LAPSE))
    share = average / demand.places
    first = min(max(share / 2, _SHORTEST_LOOK), _LONGEST_LOOK)
    since = now - _GRACE
    rank = record.count(since, float("inf")) if promised is None else record.rank(job_id, since)
    at = now + first + rank * share * _EAGERNESS
    if promised is not None and not is_due and promised <= at:
        return _Grant(granted=False, at=promised)
    return _Grant(granted=False, at=at, is_new=True)


def _line_up(job_id: str, demand: Demand, record: LimitRecord, at: float) -> float:
    if record.promised(job_id) is not None or record.waiting() < _LONGEST_LINE:
        record.promise(job_id, at)
        return at
    step = demand.interval if isinstance(demand, RateDemand) else (record.average or _UNKNOWN_RUN) / demand.places
    record.spill = max(record.spill, at) + step
    return record.spill

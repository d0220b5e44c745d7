"""Limits that all workers share, and the runs that wait for them.

    acquire  all or nothing, in one call to the state, for all limits of the task
    refused  the job returns to the broker with a delay until its turn, which the state records. Nothing waits in
             memory, and other messages of the queue pass it
    granted  a start at most `PATIENCE` away is awaited here, by a few runs at a time, instead of at the broker,
             whose delays are not that precise
    release  permits are released before the result is stored

Permits are leases, which one call renews for all runs of the worker. Those of a dead worker expire; or at once, if a
waiting worker on the same machine sees that its process is gone. A granted start that does not happen (the worker
stopped, another guard refused) is lost: the rate is then lower, never higher.

Under a strict rate a start must not be late either: it could coincide with those after it. A period of the rate is
longer by `STRICT_MARGIN`; a start later than that does not happen, and is requested again.

If the state does not answer, jobs wait (`on_failure="closed"`), or run without their limits if all of them allow it
(`"open"`). A permit whose lease cannot be renewed in time may go to another run while the first continues; this is
logged.
"""

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.stores import Demand, LimitEntry, LimitStore, PlaceDemand, RateDemand, ResultRecord
from taskmq.durable.lease_keeper import LeaseKeeper
from taskmq.errors import InvalidArguments, StateUnavailable
from taskmq.model.clock import Clock
from taskmq.model.envelope import JSON, Envelope
from taskmq.model.outcome import EXPIRED, Cancelled, Dead, Outcome, Snoozed
from taskmq.options.limits import STRICT_MARGIN
from taskmq.tasks.task import Task
from taskmq.worker.attempt import Attempt, Permit
from taskmq.worker.host.process_facts import is_gone, process_identity

_log = logging.getLogger("taskmq.worker")

PATIENCE: Final = 0.1
"""Maximum seconds for which a run waits here, in its slot."""

# Lead of a job's return before its turn, to wait for the rest here: more than brokers round a delay up by.
_LEAD: Final = 0.15
_SHORTEST: Final = 0.1
# Fraction of the predicted wait: the line may move faster than predicted.
_EAGERNESS: Final = 0.95
_LONGEST: Final = 890.0
# One in this many of a worker's slots may hold waiting runs.
_SHARE: Final = 4
_OPEN_FOR: Final = 1.0
# Seconds that a start under a strict rate may be late: clocks and sleeps are imprecise by a millisecond. With a
# distant state the tolerance grows up to `_LATEST`, which delays the next start equally; every punctual start lowers
# it.
_IN_TIME: Final = STRICT_MARGIN - 0.001
_LATEST: Final = 5.0
_CALM: Final = 0.9
_ROOM: Final = 1.2
# A message that is early by at most this (s) is kept in hand until it is due.
_EARLY: Final = 0.125


def has_limits(app: TaskMQ) -> bool:
    """Return whether some task of the app has limits that workers share."""
    return any(task.limits for task in app.tasks.values())


class LimitsGuard:
    """Limits of the tasks of one worker.

    Args:
        concurrency: slots of the worker.
        lease: seconds until the permits of a silent worker expire.
        patience: seconds for which a run may wait here, in its slot. 0: the broker's delays are exact, as in a test,
            so each run waits there for its turn.
    """

    def __init__(
        self, app: TaskMQ, limits: LimitStore, *, concurrency: int, lease: float, patience: float = PATIENCE
    ) -> None:
        self._patience = patience
        self._limits = limits
        self._clock: Clock = app.sessions.clock
        self._identity = process_identity()
        self._numbers = itertools.count(1)
        self._waiting = 0
        self._most_waiting = max(concurrency // _SHARE, 1)
        self._open_until = 0.0
        self._in_time = _IN_TIME
        self._lease = lease
        self._holder = _Holder(limits, self._clock, lease=lease)

    def concerns_task(self, task: Task[..., Any]) -> bool:
        """See `Guard`."""
        return bool(task.limits)

    def concerns(self, attempt: Attempt) -> bool:
        return self.concerns_task(attempt.task)

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        try:
            demands = _demands(attempt)
        except InvalidArguments as error:
            return Dead("invalid_arguments", error)
        if demands is None:
            # Its run gets the same arguments, and reports the error.
            return _NOTHING
        if (unwanted := self._skip_limits(attempt)) is not None:
            with contextlib.suppress(StateUnavailable):
                await self._limits.withdraw(attempt.job_id, [demand.key for demand in demands])
            return unwanted
        if (left := _seconds_until_due(attempt.envelope, self._clock)) > _EARLY:
            # The granted start would have passed before the job is due.
            return Snoozed(timedelta(seconds=left))
        is_open = all(limit.limit.on_failure == "open" for limit in attempt.task.limits)
        if is_open and self._clock.monotonic() < self._open_until:
            return _NOTHING
        try:
            return await self._enter(attempt, demands)
        except StateUnavailable as error:
            if not is_open:
                raise
            _log.warning("task %s runs without its limits: %s", attempt.envelope.task, error)
            self._open_until = self._clock.monotonic() + _OPEN_FOR
            return _NOTHING

    def _skip_limits(self, attempt: Attempt) -> Permit | Outcome | None:
        if attempt.cancelled is not None:
            return _NOTHING
        expires = attempt.envelope.expires
        if expires is not None and self._clock.now_ms() >= expires:
            return Cancelled(EXPIRED)
        return None

    async def _enter(self, attempt: Attempt, demands: Sequence[Demand]) -> Permit | Outcome:
        hold = f"{self._identity}/{next(self._numbers)}"
        places = [demand for demand in demands if isinstance(demand, PlaceDemand)]
        patience = self._patience if self._waiting < self._most_waiting else 0.0
        strict = any(_is_strict(demand) for demand in demands)
        while True:
            asked, in_time = self._clock.monotonic(), self._in_time
            wanted = _with_more_time(demands, in_time - _IN_TIME) if strict and in_time > _IN_TIME else demands
            try:
                entry = await self._limits.acquire(
                    attempt.job_id, wanted, hold=hold, seconds=self._lease, patience=patience
                )
            except BaseException:
                # The permit may have been granted.
                self._holder.release_later(hold, places)
                raise
            if entry.granted:
                granted = self._holder.hold(hold, places, job_id=attempt.job_id) if places else _NOTHING
                if entry.wait > 0:
                    await self._wait(entry.wait - (self._clock.monotonic() - asked), hold, places)
                if not strict or self._is_in_time(self._clock.monotonic() - asked - entry.wait, in_time):
                    return granted
                # The granted start is counted but does not happen: this late it would be one too many in its period.
                self._holder.release_later(hold, places)
                hold = f"{self._identity}/{next(self._numbers)}"
                continue
            if await self._expire_dead_holders(entry):
                continue
            return Snoozed(timedelta(seconds=self._pause(entry.wait, places)), is_limited=True)

    def _pause(self, wait: float, places: Sequence[PlaceDemand]) -> float:
        if not self._patience:
            # A run releases a permit, and no clock predicts its end.
            return max(wait, _SHORTEST if places else 0.0)
        return _pause(wait)

    def _is_in_time(self, late: float, in_time: float) -> bool:
        self._in_time = min(max(in_time * _CALM, late * _ROOM, _IN_TIME), _LATEST)
        return late <= in_time

    async def _wait(self, seconds: float, hold: str, places: Sequence[PlaceDemand]) -> None:
        self._waiting += 1
        try:
            await asyncio.sleep(max(seconds, 0.0))
        except BaseException:
            self._holder.release_later(hold, places)
            raise
        finally:
            self._waiting -= 1

    async def _expire_dead_holders(self, entry: LimitEntry) -> bool:
        """Release the permits of processes that ended; return whether there were any."""
        gone = [hold for hold in entry.holds if is_gone(hold.partition("/")[0])]
        for hold in gone:
            await self._limits.release(hold, [entry.key], held=None)
        return bool(gone)


def _is_strict(demand: Demand) -> bool:
    return isinstance(demand, RateDemand) and demand.strict


def _with_more_time(demands: Sequence[Demand], seconds: float) -> list[Demand]:
    """Return the demands of a start that may be this much later, which delays the next starts equally."""
    return [
        msgspec.structs.replace(demand, interval=demand.interval + seconds)
        if isinstance(demand, RateDemand) and demand.strict
        else demand
        for demand in demands
    ]


class _Holder:
    """Permits of one worker; renews them all together while there are any."""

    def __init__(self, limits: LimitStore, clock: Clock, *, lease: float) -> None:
        self._limits = limits
        self._clock = clock
        self._lease = lease
        self._held: dict[str, _HeldPermits] = {}
        self._skip_limits: dict[str, Sequence[PlaceDemand]] = {}
        self._keeper = LeaseKeeper("permits of running jobs", seconds=lease, renew=self._renew)

    def hold(self, hold: str, places: Sequence[PlaceDemand], *, job_id: str) -> "_HeldPermits":
        held = self._held[hold] = _HeldPermits(self, hold, places, job_id, since=self._clock.monotonic())
        self._keeper.watch()
        return held

    async def release(self, held: "_HeldPermits") -> None:
        self._held.pop(held.name, None)
        try:
            seconds = self._clock.monotonic() - held.since
            await self._limits.release(held.name, [demand.key for demand in held.places], held=seconds)
        except StateUnavailable as error:
            _log.warning("job %s: releasing its permits failed, will retry: %s", held.job_id, error)
            self.release_later(held.name, held.places)

    def release_later(self, hold: str, places: Sequence[PlaceDemand]) -> None:
        """Release permits that may be held, in the background."""
        self._held.pop(hold, None)
        if places:
            self._skip_limits[hold] = places
            self._keeper.hurry()

    async def _renew(self) -> bool:
        for hold, places in tuple(self._skip_limits.items()):
            await self._limits.release(hold, [demand.key for demand in places], held=None)
            self._skip_limits.pop(hold, None)
        await self._renew_held()
        return bool(self._held or self._skip_limits)

    async def _renew_held(self) -> None:
        pairs = [(held, demand) for held in self._held.values() for demand in held.places]
        if not pairs:
            return
        answers = await self._limits.renew([(held.name, demand) for held, demand in pairs], seconds=self._lease)
        for (held, demand), is_held in zip(pairs, answers, strict=True):
            if held.name not in self._held:
                # The run ended meanwhile, and the permit may have been acquired once more.
                self.release_later(held.name, held.places)
            elif not is_held and not held.is_lost:
                held.is_lost = True
                _log.warning(
                    "job %s continues without its permit (%s): it was not renewed in time, and another run holds it",
                    held.job_id,
                    demand.key,
                )


class _HeldPermits:
    """Permits that a run holds."""

    __slots__ = ("_holder", "is_lost", "job_id", "name", "places", "since")

    def __init__(
        self, holder: _Holder, name: str, places: Sequence[PlaceDemand], job_id: str, *, since: float
    ) -> None:
        self._holder = holder
        self.name = name
        self.places = places
        self.job_id = job_id
        self.since = since
        self.is_lost = False

    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:  # noqa: ARG002 - however it ended
        await self._holder.release(self)
        return True


class _NoPermit:
    """A permit that holds nothing."""

    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:  # noqa: ARG002 - however it ended
        return True


_NOTHING: Final = _NoPermit()


def _demands(attempt: Attempt) -> list[Demand] | None:
    """Return the run's demands; None if its arguments do not fit the task.

    Raises:
        InvalidArguments: they yield no key.
    """
    task, envelope = attempt.task, attempt.envelope
    args: tuple[object, ...] = ()
    kwargs: dict[str, object] = {}
    if any(limit.takes_key for limit in task.limits):
        try:
            content_type = attempt.delivery.content_type or JSON
            args, kwargs = task.signature.decode(envelope.args, envelope.kwargs, content_type)
        except Exception:  # noqa: BLE001 - the types of a task run code of their own when they are decoded
            return None
    return [limit.demand(args, kwargs, tenant=envelope.tenant) for limit in task.limits]


def _seconds_until_due(envelope: Envelope, clock: Clock) -> float:
    return 0.0 if envelope.eta is None else (envelope.eta - clock.now_ms()) / 1000


def _pause(wait: float) -> float:
    if wait > _LONGEST:
        # Waits of the maximum length are spread, so that they do not end together.
        return wait * random.uniform(0.8, 1.0)
    return max(wait * _EAGERNESS - _LEAD, _SHORTEST)

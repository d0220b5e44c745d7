"""Runs that have to wait for limits which all workers share.

    enter    what the task's limits demand is taken, all or nothing, in one call to the state
    refused  the job goes back into the broker's delay until its turn, which the state keeps for it. Nothing waits in
             memory, and what else is in the queue passes
    granted  a start that is at most `PATIENCE` away is waited for here, by a few at a time, instead of at the broker,
             which is not that punctual
    leave    places are given back before the result is stored

Places are held under leases, which one call renews for all runs of the worker. Those of a worker that dies pass on
at their end; at once, when a worker on the same machine that waits for one sees that its process is gone. Starts that
were granted and not made (the worker stopped meanwhile, another guard refused) are lost: the rate is lower then,
never higher.

Under a strict rate a start must not be late either: it could come together with those after it. A period of the rate
is longer by `STRICT_MARGIN`; a start that is later than that is not made, and asked for anew.

When the state does not answer, jobs wait (`on_failure="closed"`), or run without their limits where all of them say
so (`"open"`). A place whose lease cannot be renewed in time may be given to another run, while the first goes on:
that is logged.
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

__all__ = ["PATIENCE", "LimitsGuard", "has_limits"]

_log = logging.getLogger("taskmq.worker")

PATIENCE: Final = 0.1
"""Seconds for which a run may wait here, in its slot."""

# So much before its turn a job comes back, to wait for the rest here: more than what brokers round a delay up by.
_LEAD: Final = 0.15
_SHORTEST: Final = 0.1
# Of its wait: lines may move faster than they did when it was answered.
_EAGERNESS: Final = 0.95
_LONGEST: Final = 890.0
# Of a worker's slots, those in which runs wait.
_SHARE: Final = 4
_OPEN_FOR: Final = 1.0
# Seconds that a start under a strict rate may be late: clocks and sleeps are inexact by a millisecond. Where the
# state is far away it is more, up to the latest, and then the next start has to be later by as much; less with each
# one that is in time.
_IN_TIME: Final = STRICT_MARGIN - 0.001
_LATEST: Final = 5.0
_CALM: Final = 0.9
_ROOM: Final = 1.2
# A message this much early (s) is kept in hand by who runs it.
_EARLY: Final = 0.125


def has_limits(app: TaskMQ) -> bool:
    """Whether some task of the app has limits that workers share."""
    return any(task.limits for task in app.tasks.values())


class LimitsGuard:
    """The limits of the tasks of one worker.

    Args:
        concurrency: slots of the worker.
        lease: seconds until the places of a worker that has gone silent pass on.
        patience: seconds for which a run may wait here, in its slot. 0: delays of the broker end at their
            millisecond, as in a test, and each run waits there for exactly its turn.
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
            # Its run meets the same arguments, and knows what they mean.
            return _NOTHING
        if (unwanted := self._unwanted(attempt)) is not None:
            with contextlib.suppress(StateUnavailable):
                await self._limits.withdraw(attempt.job_id, [demand.key for demand in demands])
            return unwanted
        if (left := _left(attempt.envelope, self._clock)) > _EARLY:
            # Its start would be over before its time has come.
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

    def _unwanted(self, attempt: Attempt) -> Permit | Outcome | None:
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
                # It may be held.
                self._holder.let_go(hold, places)
                raise
            if entry.granted:
                granted = self._holder.hold(hold, places, job_id=attempt.job_id) if places else _NOTHING
                if entry.wait > 0:
                    await self._wait(entry.wait - (self._clock.monotonic() - asked), hold, places)
                if not strict or self._is_in_time(self._clock.monotonic() - asked - entry.wait, in_time):
                    return granted
                # The start that was granted is counted, and not made: so late it would be one too many of its period.
                self._holder.let_go(hold, places)
                hold = f"{self._identity}/{next(self._numbers)}"
                continue
            if await self._expire_dead_holders(entry):
                continue
            return Snoozed(timedelta(seconds=self._pause(entry.wait, places)), is_limited=True)

    def _pause(self, wait: float, places: Sequence[PlaceDemand]) -> float:
        if not self._patience:
            # A place is given back by a run, which no clock says the end of.
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
            self._holder.let_go(hold, places)
            raise
        finally:
            self._waiting -= 1

    async def _expire_dead_holders(self, entry: LimitEntry) -> bool:
        """Give back the places of processes that have ended; whether there were any."""
        gone = [hold for hold in entry.holds if is_gone(hold.partition("/")[0])]
        for hold in gone:
            await self._limits.release(hold, [entry.key], held=None)
        return bool(gone)


def _is_strict(demand: Demand) -> bool:
    return isinstance(demand, RateDemand) and demand.strict


def _with_more_time(demands: Sequence[Demand], seconds: float) -> list[Demand]:
    """The demands of a start that may be later by so much, so that the next ones have to be later, too."""
    return [
        msgspec.structs.replace(demand, interval=demand.interval + seconds)
        if isinstance(demand, RateDemand) and demand.strict
        else demand
        for demand in demands
    ]


class _Holder:
    """The places of one worker: renews them all together, as long as there are any."""

    def __init__(self, limits: LimitStore, clock: Clock, *, lease: float) -> None:
        self._limits = limits
        self._clock = clock
        self._lease = lease
        self._held: dict[str, _HeldPermits] = {}
        self._unwanted: dict[str, Sequence[PlaceDemand]] = {}
        self._keeper = LeaseKeeper("places of running jobs", seconds=lease, renew=self._renew)

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
            _log.warning("the places of job %s are given back later: %s", held.job_id, error)
            self.let_go(held.name, held.places)

    def let_go(self, hold: str, places: Sequence[PlaceDemand]) -> None:
        """Give places back that may be held, soon."""
        self._held.pop(hold, None)
        if places:
            self._unwanted[hold] = places
            self._keeper.hurry()

    async def _renew(self) -> bool:
        for hold, places in tuple(self._unwanted.items()):
            await self._limits.release(hold, [demand.key for demand in places], held=None)
            self._unwanted.pop(hold, None)
        await self._renew_held()
        return bool(self._held or self._unwanted)

    async def _renew_held(self) -> None:
        pairs = [(held, demand) for held in self._held.values() for demand in held.places]
        if not pairs:
            return
        answers = await self._limits.renew([(held.name, demand) for held, demand in pairs], seconds=self._lease)
        for (held, demand), is_held in zip(pairs, answers, strict=True):
            if held.name not in self._held:
                # It has ended meanwhile, and may have been taken once more.
                self.let_go(held.name, held.places)
            elif not is_held and not held.is_lost:
                held.is_lost = True
                _log.warning(
                    "job %s goes on without its place (%s): it was not renewed in time, and another run has it",
                    held.job_id,
                    demand.key,
                )


class _HeldPermits:
    """Places that a run holds."""

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
    """Nothing is held."""

    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:  # noqa: ARG002 - however it ended
        return True


_NOTHING: Final = _NoPermit()


def _demands(attempt: Attempt) -> list[Demand] | None:
    """What the run takes; None where its arguments do not fit the task.

    Raises:
        InvalidArguments: they make no key.
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


def _left(envelope: Envelope, clock: Clock) -> float:
    return 0.0 if envelope.eta is None else (envelope.eta - clock.now_ms()) / 1000


def _pause(wait: float) -> float:
    if wait > _LONGEST:
        # All that wait the longest: not to come together.
        return wait * random.uniform(0.8, 1.0)
    return max(wait * _EAGERNESS - _LEAD, _SHORTEST)

"""A day of the demo shop before its start, written through the store's own interfaces at past times.

A clock runs through the day in steps. In each one, the shop submits jobs, dispatches them, and applies reports like
those of workers; the figures count the same runs. A bad release two hours ago made payments fail, until
the present one replaced it.
"""

import asyncio
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.history import QueueDepth, history_of
from taskmq.contracts.identity import Actor
from taskmq.contracts.jobs import DispatchedJob, JobStore, Pick, partition_key
from taskmq.demo.showcase import (
    DECLINED,
    EXPIRED_CARD,
    app,
    charge,
    close_books,
    resize,
    send_mail,
    submit_order,
    submit_photo,
)
from taskmq.model.history.alerts import Alert, AlertRule, AlertState
from taskmq.model.history.rollups import MINUTE, Rollup, RollupKey, RunFailure, minute_of
from taskmq.model.jobs.reports import Report, ReportKind
from taskmq.model.outcome import ErrorRecord
from taskmq.operations.audit.actions import note_action
from taskmq.testing.fake_clock import FakeClock

# A day, and one step of its charts, which begin in the middle of a step.
_DAY: Final = 1455
# The charts of an hour, six hours and a day have points every minute, five and fifteen.
_STEPS: Final = ((60, 1), (360, 5), (_DAY, 15))
_BAD_RELEASE: Final = range(95, 150)
_BAD_VERSION: Final = "1.42.0"
_GOOD_VERSION: Final = "1.41.3"
_NOTICED: Final = 145
_WORKERS: Final = ("shop-1", "shop-2")
_ATTEMPTS: Final = 3
_IMPORT: Final = 30
_PHOTOS: Final = 40
_MANY: Final = 10_000
_TRUNCATED: Final = 23
# Truncated photos come since this many minutes.
_BAD_PHOTOS: Final = 240
_BOUNCED: Final = 90
_RULE: Final = AlertRule(
    name="payments-fail",
    metric="failure_rate",
    threshold=0.05,
    task=charge.name,
    window=14_400.0,
    severity="critical",
    note="Look at the failures of orders.charge, and at the last release.",
)


async def write_past(store: str) -> None:
    """Write a day of jobs, figures and failures, a firing alert, and a workflow that has just been sent."""
    sessions = app.sessions
    now = sessions.clock.now_ms()
    clock = FakeClock(now - _DAY * MINUTE)
    before = sessions.exchange(replace(sessions.settings, store=store), clock, {})
    try:
        async with app:
            await _Day(app, sessions.store(), clock).write(now)
            await close_books.asend()
    finally:
        sessions.exchange(*before)


class _Day:
    """The day, written step by step."""

    def __init__(self, shop: TaskMQ, store: JobStore, clock: FakeClock) -> None:
        self._app = shop
        self._store = store
        self._clock = clock
        self._random = random.Random(54)
        self._epochs: dict[int, int] = {}
        self._numbers: dict[str, int] = {}
        self._figures: dict[RollupKey, Rollup] = {}
        self._failures: list[RunFailure] = []
        self._depths: dict[tuple[str, int], QueueDepth] = {}

    async def write(self, now: int) -> None:
        leases = self._store.dispatching.leases
        for partition in range(self._store.dispatching.partitions):
            epoch = await leases.acquire(partition_key(partition), owner="demo", seconds=2 * _DAY * 60.0)
            assert isinstance(epoch, int)
            self._epochs[partition] = epoch
        for ago, minutes in _steps():
            self._advance_to(now - ago * MINUTE)
            await self._write_changes(ago)
            await self._write_step(ago, minutes)
        self._advance_to(now)
        for partition, epoch in self._epochs.items():
            await leases.release(partition_key(partition), token=epoch)
        await self._app.jobs.asubmit_many(resize, [(photo,) for photo in range(_PHOTOS)])
        history = history_of(self._store)
        await history.rollups.add(list(self._figures.values()), self._failures)
        await history.depths.add(list(self._depths.values()))
        since = now - _NOTICED * MINUTE
        firing = Alert(
            tenant="",
            rule=_RULE.name,
            subject="",
            state=AlertState.FIRING,
            since=since,
            value=0.12,
            changed=since,
            severity=_RULE.severity,
        )
        await history.alerts.commit([firing], [])

    def _advance_to(self, instant: int) -> None:
        self._clock.advance(timedelta(milliseconds=max(0, instant - self._clock.now_ms())))

    async def _write_changes(self, ago: int) -> None:
        """Report the version of the workers, and change what an operator changes at this time."""
        history = history_of(self._store)
        older = _BAD_VERSION if ago in _BAD_RELEASE else _GOOD_VERSION
        version = self._app.sessions.app_version if ago < _BAD_RELEASE.start else older
        await history.versions.report([(worker, version) for worker in _WORKERS], at=self._clock.now_ms())
        if ago == _NOTICED:
            by = Actor(user="dana", note=f"payments fail since {_BAD_VERSION}")
            await history.alerts.put_rule(_RULE, audit=by.entry("alert.put", kind="alert", subject=_RULE.name))
        if ago == _IMPORT:
            by = Actor(user="dana", note="a partner imports photos")
            await note_action(self._app, by, "queue.policy", subject=resize.queue, after={"policy": "fifo"})
            await self._app.pools.aset_policy(resize.queue, "fifo")

    async def _write_step(self, ago: int, minutes: int) -> None:
        # Most customers come at the present hour of the day.
        rate = 2.4 + 1.4 * math.cos(2 * math.pi * ago / _DAY)
        orders = [self._random.randrange(1, 100_000) for _ in range(round(rate * minutes * self._vary(0.1)))]
        photos = [order for order in orders if order % 3 == 0]
        jobs = await asyncio.gather(
            *(submit_order(order) for order in orders), *(submit_photo(photo) for photo in photos)
        )
        self._numbers |= zip((job.id for job in jobs), (*orders, *photos), strict=True)
        while dispatched := await self._dispatch():
            await self._store.dispatching.apply([self._run(job, ago, minutes) for job in dispatched])
            # By then, attempts that are retried are due.
            self._clock.advance("6s")
        self._note_depths(ago, minutes, len(orders), len(photos))
        for _ in range(2 * len(orders)):
            # Mails are sent, and leave no job in the store.
            mail = self._figures_of(minutes, send_mail.name, send_mail.queue)
            is_bounced = self._random.randrange(_BOUNCED) == 0
            outcome = "dead" if is_bounced else "succeeded"
            mail.outcomes[outcome] = mail.outcomes.get(outcome, 0) + 1
            if is_bounced:
                self._failures.append(_bounce(self._clock.now_ms(), len(self._failures)))
            mail.waited.add(0.02 * self._vary(0.6))
            mail.ran.add(0.02 * self._vary(0.3))

    def _note_depths(self, ago: int, minutes: int, orders: int, photos: int) -> None:
        """Record how many jobs of each queue wait and run in a minute of the step."""
        waiting = photos * (12 if ago <= _IMPORT else 0) + (_PHOTOS if ago <= _IMPORT else 0)
        slow = 3 * orders // minutes if ago in _BAD_RELEASE else 0
        at = minute_of(self._clock.now_ms())
        for queue, stored, running in (
            (resize.queue, waiting, max(1, photos // minutes)),
            (charge.queue, slow, max(1, orders // minutes)),
            (send_mail.queue, 0, 1),
        ):
            in_hand = self._random.randrange(running + 1)
            self._depths[queue, at] = QueueDepth(queue=queue, at=at, stored=stored, ready=0, in_hand=in_hand)

    async def _dispatch(self) -> list[DispatchedJob]:
        dispatching = self._store.dispatching
        found: list[DispatchedJob] = []
        for partition, epoch in self._epochs.items():
            due = await dispatching.due(partition, until=self._clock.now_ms(), limit=_MANY)
            if due:
                await dispatching.fire(partition, epoch, due)
            lanes = await dispatching.lanes(partition)
            batch = await dispatching.dispatch(partition, epoch, [Pick(lane, _MANY) for lane in lanes])
            if batch is not None:
                await dispatching.confirm([batch.id])
                found += batch.jobs
        return found

    def _run(self, job: DispatchedJob, ago: int, minutes: int) -> Report:
        """Return the report of a run, and count it."""
        number = self._numbers[job.id]
        waited, ran = 0.04 * self._vary(0.6), (0.05 + number % 7 / 20) * self._vary(0.2)
        kind: ReportKind = "succeeded"
        error: ErrorRecord | None = None
        if job.task == resize.name:
            ran = (0.8 + number % 5 / 5) * self._vary(0.2)
            # An import of many photos keeps all workers busy.
            waited *= 400 if ago <= _IMPORT else 1
            if number % _TRUNCATED == 0 and ago <= _BAD_PHOTOS:
                missing = number % 9 + 1
                message = f"image file is truncated ({missing} bytes not processed)"
                kind, error = "failed", _failure("OSError", message, "images.py", "resize")
        elif ago in _BAD_RELEASE and self._random.random() < 0.75:
            kind, ran = ("retry" if job.attempt < _ATTEMPTS else "failed"), 2.0 * self._vary(0.1)
            error = _failure(
                f"{charge.__module__}.ProviderTimeoutError", f"order {number}: the bank did not answer in 2 s"
            )
        elif number % EXPIRED_CARD == 0:
            kind, error = (
                "failed",
                _failure(f"{charge.__module__}.CardExpiredError", f"order {number}: the card has expired"),
            )
        elif number % DECLINED == 0 and job.attempt == 1:
            kind, error = (
                "retry",
                _failure(f"{charge.__module__}.PaymentDeclinedError", f"order {number}: the payment was declined"),
            )
        figures = self._figures_of(minutes, job.task, job.queue)
        outcome = {"retry": "retried", "failed": "dead"}.get(kind, kind)
        figures.outcomes[outcome] = figures.outcomes.get(outcome, 0) + 1
        figures.ran.add(ran)
        if job.attempt == 1:
            figures.waited.add(waited)
        return Report(
            id=job.id,
            token=job.token,
            kind=kind,
            attempt=job.attempt,
            worker=_WORKERS[number % 2],
            started=self._clock.now_ms() + round(waited * 1000),
            ran=round(ran * 1000),
            delay=2_000,
            error=error,
        )

    def _figures_of(self, minutes: int, task: str, queue: str) -> Rollup:
        """Return the figures of a task in any minute of the step."""
        minute = minute_of(self._clock.now_ms()) + self._random.randrange(minutes) * MINUTE
        return self._figures.setdefault(key := RollupKey(minute, task, queue, ""), Rollup(key))

    def _vary(self, by: float) -> float:
        return math.exp(self._random.gauss(0, by))


def _steps() -> Iterator[tuple[int, int]]:
    """Yield the steps of the day: how many minutes ago each began, and its length in minutes."""
    ago = _DAY
    while ago > 0:
        minutes = next(length for until, length in _STEPS if ago <= until)
        yield ago, minutes
        ago -= minutes


def _failure(name: str, message: str, file: str = "payments.py", function: str = "charge") -> ErrorRecord:
    where = f'  File "shop/{file}", line 41, in {function}\n    raise {name.rpartition(".")[2]}(message)\n'
    return ErrorRecord(
        type_name=name, message=message, traceback=f"Traceback (most recent call last):\n{where}{name}: {message}\n"
    )


def _bounce(at: int, number: int) -> RunFailure:
    """Return the failure of a mail whose address does not exist."""
    return RunFailure(
        at=at,
        job=f"mail-{number}",
        event="dead",
        task=send_mail.name,
        queue=send_mail.queue,
        worker=_WORKERS[0],
        attempt=_ATTEMPTS,
        seconds=0.02,
        error="smtplib.SMTPRecipientsRefused",
        reason="failed",
        message="550 mailbox unavailable",
    )

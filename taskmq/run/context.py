"""What a running task can know about its own run."""

import contextlib
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar, cast

import msgspec

from taskmq.contracts.stores import BegunRun
from taskmq.errors import EncodeError, UnsupportedFeature
from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.resources import Grant
from taskmq.model.units import Duration, to_datetime
from taskmq.model.values.celery_words import CeleryHints
from taskmq.run.journal import CHECKPOINT, DETACHED, HEARTBEAT, JournalWriter, RunJournal, SavedStep, read_value
from taskmq.run.locks import Lock, LockService

__all__ = [
    "SCHEDULED_FOR",
    "SCHEDULE_DUE",
    "SCHEDULE_LIMIT",
    "SCHEDULE_NAME",
    "Context",
    "current_context",
    "due_instant",
    "invitation_of",
]

SCHEDULE_NAME: Final = "taskmq.schedule"
SCHEDULED_FOR: Final = "taskmq.scheduled_for"
SCHEDULE_DUE: Final = "taskmq.schedule_due"
SCHEDULE_LIMIT: Final = "taskmq.schedule_limit"
"""Keys of an envelope's `meta` that beat fills in: the schedule's name, its nominal instant in ms, when it was to be
sent, where that is another one, and how many occurrences may run at a time, where that is limited."""


def due_instant(envelope: Envelope) -> int | None:
    """Return the time (ms) at which a job was to start; None where it is unknown.

    That is its `eta`, the instant of its schedule, else when it was sent. For a job of the store it is what the store
    says, which says it before the first run only.
    """
    if envelope.store is not None:
        return envelope.store.due
    if envelope.eta is not None:
        return envelope.eta
    meta = envelope.meta
    # The steps of a workflow are due one after the other.
    if meta is not None and envelope.root is None and (instant := meta.get(SCHEDULE_DUE) or meta.get(SCHEDULED_FOR)):
        # Any client may have written it.
        with contextlib.suppress(ValueError):
            return int(instant)
    return envelope.enqueued


P = ParamSpec("P")
R = TypeVar("R")

_NO_META: Mapping[str, str] = MappingProxyType({})


_NOTHING: Final = Grant(MappingProxyType({}))
_opening: Final = threading.RLock()


class Context(CeleryHints, msgspec.Struct, eq=False):
    """One attempt of one job. Injected into a task's parameter that is annotated with this class.

    Attributes:
        job_id: the same in every attempt.
        max_attempts: as the task's retry policy says; 1 without one.
        queue: the queue, as people name it.
        redelivered: whether the message may have been in another worker's hands before.
        started: when the run began, in ms since the epoch by this worker's clock; 0 outside of one.
        is_settled: the run is over and its message settled; what goes on in its context is not the worker's.

    **What the task tells while it runs** (`progress`, `heartbeat`) may be called as often as one likes, from any
    thread: the last word is kept, written at most twice a second and at the end, and never raises for the state's
    sake.

    **What it saves for later runs** (`step`, `checkpoint`; `astep`, `acheckpoint` in coroutines) is durable when the
    call returns. A run that follows after a crash, a retry or a deploy finds it. The last run that has begun is the
    job's: an earlier one that is still alive somewhere cannot save any more. Everything is forgotten when the job has
    ended, and after a week without a run. These raise:

    - `StateUnavailable`: what was to be saved may not be, so the run must not go on as if it were.
    - `RunSuperseded`: another run of the job has begun.
    - `EncodeError`, `TooLarge`: a value has no form as JSON, or too much of it.
    - `UnsupportedFeature`: the app has no state; or a blocking call was made on the event loop.

    In a call of the task as a plain function, outside of a worker, all of them work and nothing outlives the call.
    """

    _envelope: Envelope
    job_id: str
    max_attempts: int
    queue: str
    redelivered: bool
    _deadline: float | None = None
    _writer: JournalWriter = DETACHED
    started: int = 0
    _grant: Grant | None = None
    fence: tuple[str, int] | None = None
    journal: RunJournal | None = None
    _cancelled: bool = False
    _preempted: str | None = None
    is_settled: bool = False

    @classmethod
    def detached(cls, task: str) -> "Context":
        """Make a context for calling a task as the plain function that it is, outside of a worker."""
        return cls(Envelope(task=task), job_id="", max_attempts=1, queue="", redelivered=False)

    @property
    def task(self) -> str:
        """The name under which messages call the task."""
        return self._envelope.task

    @property
    def flow_id(self) -> str | None:
        """The id of the workflow or batch that the job is a step of; None where it is none."""
        flow = self._envelope.flow
        return None if flow is None else flow.rpartition("/")[0]

    @property
    def attempt(self) -> int:
        """Which attempt of the job this is, from 1; runs that were snoozed or interrupted are not counted."""
        return self._envelope.attempt

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts

    @property
    def deadline(self) -> datetime | None:
        """When the task's `timeout` ends, UTC; None without one."""
        return None if self._deadline is None else datetime.fromtimestamp(self._deadline, UTC)

    @property
    def cancelled(self) -> bool:
        """Whether the run is no longer wanted: a thread should look at it now and then, and return."""
        return self._cancelled

    def mark_cancelled(self) -> None:
        """Called by the worker when the run is given up."""
        self._cancelled = True

    @property
    def preempted(self) -> str | None:
        """Why this run is to give way to others; None while it need not.

        A coroutine that is asked gets a `CancelledError` raised inside, and may save a checkpoint before it lets that
        pass. A plain function should look here now and then: it saves a checkpoint and raises `Snooze(0)`. The job
        goes on later, in the same attempt. A run that returns has succeeded all the same.
        """
        return self._preempted

    def mark_preempted(self, reason: str) -> None:
        """Called by the worker when the run is to give way."""
        self._preempted = reason

    @property
    def resources(self) -> Grant:
        """What the run was given of its worker's resources; the ids of its GPUs are `resources.devices`."""
        return self._grant or _NOTHING

    def lock(self, name: str, *, timeout: Duration | None = None, lease: Duration = 30.0) -> Lock:
        """A lock over all processes: `async with context.lock("account:7")`, and `with` in plain functions.

        Args:
            timeout: how long to wait for it; None: as long as it takes; 0: one look.
            lease: how long it outlives this process, or its way to the state.

        Raises:
            InvalidOption: a value that cannot be.
            UnsupportedFeature: the app has neither a state nor a store; or the task runs in a separate process.
        """
        if not isinstance(self._writer, LockService):
            raise UnsupportedFeature(
                "context.lock does not reach into processes of executor='process': use `with app.lock(...)` there"
            )
        return self._writer.lock(name, owner=f"job {self.job_id or self.task}", timeout=timeout, lease=lease)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far the task is; seen from outside through `Job.progress()`.

        Raises:
            EncodeError: `done` or `total` is no finite number.
        """
        if not isfinite(done) or not (total is None or isfinite(total)):
            raise EncodeError(
                f"the progress {done!r} of {total!r} has no form as JSON: both have to be finite; leave out a total "
                "that is not known"
            )
        self.open_journal().tell_progress(done, total, note)

    def heartbeat(self, details: object = None) -> None:
        """Report that the task goes on, and, as `details`, where it is: what a later run reads as `last_heartbeat`.

        Raises:
            EncodeError: the details have no form as JSON.
        """
        self.open_journal().tell_heartbeat(details)

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what `function` returns, which runs once per job: later runs get what was saved.

        A function that raises is not done, and runs again in the next run. One that was interrupted between its
        return and the saving runs again, too. What this returns is what the saved JSON reads as by the function's
        return annotation, also in the first run.

        Args:
            name: unique among the steps of the task; what the value is found by.
        """
        journal = self.open_journal()
        step = SavedStep(journal, name, function)
        try:
            saved = journal.begin().values.get(step.key)
            if saved is None:
                saved = step.encode(function(*args, **kwargs))
                value = step.read(saved)
                journal.save(step.key, saved)
                return cast("R", value)
        except BaseException:
            step.failed()
            raise
        return cast("R", step.read(saved))

    async def astep(self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do what `step` does, for a coroutine function and without blocking the event loop."""
        journal = self.open_journal()
        step = SavedStep(journal, name, function)
        try:
            saved = (await journal.abegin()).values.get(step.key)
            if saved is None:
                saved = step.encode(await function(*args, **kwargs))
                value = step.read(saved)
                await journal.asave(step.key, saved)
                return cast("R", value)
        except BaseException:
            step.failed()
            raise
        return cast("R", step.read(saved))

    def checkpoint(self, value: object) -> None:
        """Save where the task is, in the place of the last checkpoint: for loops."""
        journal = self.open_journal()
        data = journal.checkpoint_bytes(value)
        journal.begin()
        journal.save(CHECKPOINT, data)

    async def acheckpoint(self, value: object) -> None:
        """Do what `checkpoint` does, without blocking the event loop."""
        journal = self.open_journal()
        data = journal.checkpoint_bytes(value)
        await journal.abegin()
        await journal.asave(CHECKPOINT, data)

    async def resume(self) -> None:
        """Learn what earlier runs have left: after that a coroutine can read the three attributes below.

        Not needed in plain functions, which read them at any time; the first one asks the state.
        """
        await self.open_journal().abegin()

    @property
    def last_checkpoint(self) -> Any:
        """The last checkpoint of an earlier run, or of this one, as plain data; None where there is none."""
        return read_value(self._begun.values, CHECKPOINT)

    @property
    def last_heartbeat(self) -> Any:
        """The details of an earlier run's last heartbeat, as plain data; None where there are none.

        Later than its last word by up to half a second: heartbeats are not saved one by one.
        """
        return read_value(self._begun.values, HEARTBEAT)

    @property
    def fencing_token(self) -> int:
        """A number larger than that of every run of this job that has asked before; 0 outside of a worker.

        Where the job has an idempotency key, it is the key's: larger than that of every earlier run of the key,
        whatever job that was of.

        Hand it to whatever takes the task's effect, which refuses smaller numbers than it has seen: then a run that
        was left behind and wakes up late changes nothing. Ask before the first effect; the number is this run's from
        the first time on that it asks, resumes or saves. It keeps growing when the state was emptied, as long as the
        clock of the state's server does not go back.
        """
        return self._begun.token if self.fence is None else self.fence[1]

    @property
    def idempotency_key(self) -> str | None:
        """The key under which this run's work is done once; None without one."""
        return self._envelope.key if self.fence is None else self.fence[0]

    @property
    def _begun(self) -> BegunRun:
        return self.open_journal().begin()

    def open_journal(self) -> RunJournal:
        """What this run has written down; made on first use."""
        return self.journal or self._first_journal()

    def _first_journal(self) -> RunJournal:
        with _opening:
            # Another thread of the task may have been faster.
            if self.journal is None:
                self.journal = RunJournal(
                    self._writer,
                    job_id=self.job_id,
                    attempt=self.attempt,
                    started=self.started,
                    left_behind=self.mark_cancelled,
                )
            return self.journal

    @property
    def tenant(self) -> str | None:
        return self._envelope.tenant

    @property
    def order_key(self) -> str | None:
        """What the job is ordered by; None outside of ordered queues."""
        return self._envelope.order_key

    @property
    def meta(self) -> Mapping[str, str]:
        return self._envelope.meta or _NO_META

    @property
    def root(self) -> str:
        """The id of the job that this one descends from; its own id when no task sent it."""
        return self._envelope.root or self.job_id

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that emitted this job, if one did."""
        return self.meta.get(SCHEDULE_NAME)

    @property
    def scheduled_for(self) -> datetime | None:
        """The nominal instant of that schedule, UTC, however late the job runs."""
        instant = self.meta.get(SCHEDULED_FOR)
        return None if instant is None else to_datetime(int(instant))

    def __repr__(self) -> str:
        return f"<Context {self.task} job={self.job_id} attempt={self.attempt}/{self.max_attempts}>"


def invitation_of(context: Context) -> Invitation | None:
    """What the store has sent the job with; None for one that is none of the store's."""
    # For the worker alone: no attribute that tasks see.
    return context._envelope.store  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


current_context: ContextVar[Context | None] = ContextVar("taskmq_context", default=None)
"""The run that is going on here: what a task sends from inside carries its job id as `parent`."""

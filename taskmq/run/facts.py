"""Facts of a run, which its envelope and its worker know."""

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import msgspec

from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.history.sent_runs import SentJobFacts, facts_of
from taskmq.model.resources import Grant
from taskmq.model.units import to_datetime
from taskmq.model.values.celery_words import CeleryHints

SCHEDULE_NAME: Final = "taskmq.schedule"
SCHEDULED_FOR: Final = "taskmq.scheduled_for"
SCHEDULE_DUE: Final = "taskmq.schedule_due"
SCHEDULE_LIMIT: Final = "taskmq.schedule_limit"
"""Keys that beat sets in an envelope's `meta`.

They are the schedule's name, its nominal instant in ms, the instant of sending if that differs, and the maximum of
concurrent occurrences if there is one.
"""

_NO_META: Mapping[str, str] = MappingProxyType({})
_NOTHING: Final = Grant(MappingProxyType({}))


def due_instant(envelope: Envelope) -> int | None:
    """Return the time (ms) at which a job was due; None if it is unknown.

    That is its `eta`, the instant of its schedule, else the time of sending. For a stored job it is in the
    invitation, which has it only before the first run.
    """
    if envelope.store is not None:
        return envelope.store.due
    if envelope.eta is not None:
        return envelope.eta
    meta = envelope.meta
    # The steps of a workflow become due one after the other.
    if meta is not None and envelope.root is None and (instant := meta.get(SCHEDULE_DUE) or meta.get(SCHEDULED_FOR)):
        # Any client may have written it.
        with contextlib.suppress(ValueError):
            return int(instant)
    return envelope.enqueued


class RunFacts(CeleryHints, msgspec.Struct, eq=False):
    """Facts of an attempt of a job.

    Attributes:
        job_id: the same in every attempt.
        max_attempts: as the task's retry policy says; 1 without one.
        queue: public name of the queue.
        redelivered: whether the message may have been delivered to another worker before.
        started: start of the run, in ms since the epoch by this worker's clock; 0 outside of a worker.
        is_settled: whether the run is over and its message settled; later code in its context is not the worker's.
    """

    _envelope: Envelope
    job_id: str
    max_attempts: int
    queue: str
    redelivered: bool
    _deadline: float | None = None
    started: int = 0
    _grant: Grant | None = None
    fence: tuple[str, int] | None = None
    _cancelled: bool = False
    _preempted: str | None = None
    is_settled: bool = False

    @property
    def task(self) -> str:
        """The name under which messages call the task."""
        return self._envelope.task

    @property
    def run_id(self) -> str | None:
        """Id of the run that the job is a step of; None without one."""
        step_of = self._envelope.step_of
        return None if step_of is None else step_of.rpartition("/")[0]

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1; snoozed and interrupted runs are not counted."""
        return self._envelope.attempt

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts

    @property
    def deadline(self) -> datetime | None:
        """End of the task's `timeout`, UTC; None without one."""
        return None if self._deadline is None else datetime.fromtimestamp(self._deadline, UTC)

    @property
    def cancelled(self) -> bool:
        """Whether the run was cancelled: a thread should check it now and then, and return."""
        return self._cancelled

    def mark_cancelled(self) -> None:
        """Mark the run as given up; called by the worker."""
        self._cancelled = True

    @property
    def preempted(self) -> str | None:
        """Reason why this run is preempted; None while it is not.

        In a coroutine, preemption raises a `CancelledError`; it may save a checkpoint before it lets that pass. A
        plain function should check this now and then: it saves a checkpoint and raises `Snooze(0)`. The job continues
        later, in the same attempt. A run that returns has succeeded all the same.
        """
        return self._preempted

    def mark_preempted(self, reason: str) -> None:
        """Mark the run as preempted; called by the worker."""
        self._preempted = reason

    @property
    def resources(self) -> Grant:
        """Resources of the worker that the run was granted; the ids of its GPUs are `resources.devices`."""
        return self._grant or _NOTHING

    @property
    def idempotency_key(self) -> str | None:
        """Key under which this run's work is done once; None without one."""
        return self._envelope.key if self.fence is None else self.fence[0]

    @property
    def tenant(self) -> str | None:
        return self._envelope.tenant

    @property
    def order_key(self) -> str | None:
        """Key that orders the job; None outside of ordered queues."""
        return self._envelope.order_key

    @property
    def meta(self) -> Mapping[str, str]:
        return self._envelope.meta or _NO_META

    @property
    def root(self) -> str:
        """Id of the job that this one descends from; its own id if no task sent it."""
        return self._envelope.root or self.job_id

    @property
    def schedule(self) -> str | None:
        """Name of the schedule that emitted this job, if one did."""
        return self.meta.get(SCHEDULE_NAME)

    @property
    def scheduled_for(self) -> datetime | None:
        """Nominal instant of that schedule, UTC, however late the job runs."""
        instant = self.meta.get(SCHEDULED_FOR)
        return None if instant is None else to_datetime(int(instant))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.task} job={self.job_id} attempt={self.attempt}/{self.max_attempts}>"


def invitation_of(facts: RunFacts) -> Invitation | None:
    """Return the invitation of a stored job; None for other jobs."""
    # For the worker alone: not an attribute that tasks see.
    return facts._envelope.store  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def sent_facts_of(facts: RunFacts) -> SentJobFacts:
    """Return the facts of a sent job's run, for its log lines."""
    return facts_of(
        facts._envelope,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - as above
        name=facts.job_id,
        queue=facts.queue,
        started=facts.started,
    )

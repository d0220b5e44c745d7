"""Reactions to the end of a job: published, or recorded, before the job's own delivery is settled.

    release: an end that a reaction waits for --> deliver --> confirmed --> settle
                                                  ^ broker or state unavailable: again, until the worker stops
    the worker dies: the message is redelivered, the job ends again, and the reaction has the same id

So a reaction follows at least once; workers run it once if there is a state.
"""

from typing import Any

from taskmq.app import TaskMQ
from taskmq.contracts.stores import ResultRecord
from taskmq.model.outcome import Outcome
from taskmq.model.units import to_datetime
from taskmq.reactions import Cause, ReactionDelivery
from taskmq.reactions.model.events import JobEnded
from taskmq.reactions.model.pending import RecordedEvent
from taskmq.tasks.task import Task
from taskmq.worker.attempt import Attempt, Permit


class ReactionGuard:
    """Delivers the ends of jobs to the reactions that wait for them.

    Args:
        awaited: tasks whose jobs have reactions.
    """

    def __init__(self, app: TaskMQ, awaited: set[str]) -> None:
        self._app = app
        self._awaited = awaited
        self._delivery = ReactionDelivery(app.name, app.producer)

    def concerns_task(self, task: Task[..., Any]) -> bool:
        """See `Guard`."""
        return task.name in self._awaited

    def concerns(self, attempt: Attempt) -> bool:
        """Return whether a reaction waits for the job."""
        return self.concerns_task(attempt.task)

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        return _ReactionPermit(self, attempt)

    async def follow(self, attempt: Attempt, record: ResultRecord) -> None:
        """Notify all reactions that wait for this end."""
        ended = JobEnded(
            job_id=attempt.job_id,
            task=attempt.task.name,
            state=record.state.value,
            finished=to_datetime(record.finished),
        )
        cause = Cause(attempt.job_id, attempt.envelope.root or attempt.job_id)
        for reaction, number, condition in self._app.reactions.waiting_for(attempt.task.name):
            # A scheduler submits to the store, after it has applied the report.
            is_left = attempt.envelope.store is not None and reaction.is_direct and reaction.is_submitted
            if record.state in condition.states and not is_left:
                noted = RecordedEvent(f"{attempt.job_id} {ended.state}", ended)
                await self._delivery.deliver(reaction, number, noted, cause=cause)


class _ReactionPermit:
    def __init__(self, guard: ReactionGuard, attempt: Attempt) -> None:
        self._guard = guard
        self._attempt = attempt

    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:  # noqa: ARG002 - the record says it
        if record is not None:
            await self._guard.follow(self._attempt, record)
        return True

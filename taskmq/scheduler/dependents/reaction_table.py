"""Delivery of ends of stored jobs and of runs to reactions.

    a report ends a job -> applied -> delivered, if a reaction waits for its task -> the report is acknowledged

So each such end is delivered at least once, and a repeated delivery has no effect. Workers need no store for that.
Stored reactions are read once a second; other tasks cost one look into a dictionary.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobRecord, JobStore
from taskmq.durable.service import pause
from taskmq.errors import (
    EncodeError,
    MalformedMessage,
    ReactionNotFound,
    StateUnavailable,
    StoreUnavailable,
    TooLarge,
)
from taskmq.model.envelope import decode_envelope
from taskmq.model.keys import reaction_record_key, tenant_key
from taskmq.model.runs.records import RunRecord
from taskmq.model.states import JobState
from taskmq.model.units import to_datetime
from taskmq.reactions import (
    CallFailed,
    Cause,
    JobEnded,
    JobEnds,
    PendingCalls,
    Reaction,
    ReactionDelivery,
    RunEnded,
    StoredReactions,
    WorkflowRunEnds,
    read_pending,
)
from taskmq.reactions.model.pending import RecordedEvent
from taskmq.stored_jobs.new_jobs import name_of

_log = logging.getLogger("taskmq.scheduler")

_PERIOD: Final = 1.0
_UNAVAILABLE: Final = (StateUnavailable, StoreUnavailable)


class Awaiting(NamedTuple):
    """A reaction that waits for jobs of a task, and the number of its condition."""

    reaction: Reaction
    number: int
    condition: JobEnds


class AwaitingRun(NamedTuple):
    """A reaction that waits for runs, and the number of its condition."""

    reaction: Reaction
    number: int
    condition: WorkflowRunEnds


class JobEnd(NamedTuple):
    """A reported end of a job; its task is None if it is not known."""

    job_id: str
    task: str | None
    state: JobState


class ReactionTable:
    """A service that knows the stored reactions, and delivers ends to them."""

    def __init__(self, app: TaskMQ, store: JobStore, *, me: str) -> None:
        self._app = app
        self._store = store
        self._stored = StoredReactions(app.name, app.tasks, app.reactions, store.schedules)
        self._delivery = ReactionDelivery(app.name, app.producer, stored=self._stored)
        self._calls = PendingCalls(
            app.name, self._stored, self._delivery, clock=app.sessions.clock, owner=me, log=_log
        )
        # Those that workers leave to schedulers.
        self._of_code = [each for each in app.reactions.values() if each.is_direct and each.is_submitted]
        self._dynamic: Mapping[str, list[Awaiting]] = {}
        self._reported = _by_task(self._of_code)
        self._runs_of_code = _to_runs(app.reactions.values())
        self._runs = self._runs_of_code
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Read the stored reactions and publish their due calls, every second until `stop`."""
        while not self._is_stopping.is_set():
            try:
                await self.refresh()
            except _UNAVAILABLE as error:
                _log.debug("reading stored reactions failed, will retry: %s", error)
            await pause(self._is_stopping, _PERIOD)

    async def refresh(self) -> None:
        """Read the stored reactions, and publish their due calls.

        Raises:
            StateUnavailable, StoreUnavailable: the store could not be reached.
        """
        reactions = await self._stored.list_all()
        self._dynamic = _by_task(reactions)
        self._reported = _by_task([*self._of_code, *reactions])
        self._runs = [*self._runs_of_code, *_to_runs(reactions)]
        for reaction in reactions:
            if not reaction.is_direct:
                await self._fire(reaction)

    @property
    def is_empty(self) -> bool:
        """Whether there is no stored reaction."""
        return not self._dynamic

    def stored_for(self, task: str) -> Sequence[Awaiting]:
        """Return the stored reactions to jobs of this task."""
        return self._dynamic.get(task, ())

    @property
    def to_runs(self) -> Sequence[AwaitingRun]:
        """The reactions to runs, of the code and stored."""
        return self._runs

    async def deliver(self, ends: Iterable[JobEnd]) -> None:
        """Deliver reported ends to the reactions that wait for them.

        Raises:
            SendError, StateUnavailable, StoreUnavailable: some were not delivered; delivering all again is harmless.
        """
        if not self._reported:
            return
        for end in ends:
            if end.task is not None and end.task not in self._reported:
                continue
            if (job := await self._store.get(end.job_id)) is not None:
                await self.deliver_end(self._reported.get(job.task, ()), job, end.state)

    async def deliver_end(self, waiting: Iterable[Awaiting], job: JobRecord, state: JobState) -> int:
        """Deliver the end of a job to those of these reactions that wait for this state; return their number.

        Raises:
            SendError, StateUnavailable, StoreUnavailable: as for `deliver`.
        """
        name, at = name_of(job), job.finished or 0
        wanted = [each for each in waiting if state in each.condition.states]
        ended = JobEnded(job_id=name, task=job.task, state=state.value, finished=to_datetime(at))
        cause = Cause(name, _root_of(job.body) or name)
        for reaction, number, _ in wanted:
            await self._deliver(reaction, number, RecordedEvent(f"{name} {ended.state}", ended), f"job {name}", cause)
        return len(wanted)

    async def deliver_run(self, waiting: Iterable[AwaitingRun], run: RunRecord) -> int:
        """Deliver the end of a run to those of these reactions whose conditions it meets; return their number.

        Raises:
            SendError, StateUnavailable, StoreUnavailable: as for `deliver`.
        """
        wanted = [each for each in waiting if each.condition.is_met_by(run.workflow, run.state)]
        name = tenant_key(run.tenant or None, run.id)
        ended = RunEnded(
            run_id=name,
            workflow=run.workflow,
            state=run.state.value,
            finished=to_datetime(run.ended or 0),
            scheduled_for=run.scheduled_for,
        )
        for reaction, number, _ in wanted:
            event = RecordedEvent(f"{run.id} {run.generation} {ended.state}", ended)
            await self._deliver(reaction, number, event, f"run {name}")
        return len(wanted)

    async def _deliver(
        self, reaction: Reaction, number: int, event: RecordedEvent, what: str, cause: Cause | None = None
    ) -> None:
        try:
            await self._delivery.deliver(reaction, number, event, cause=cause)
            if reaction.is_dynamic and not reaction.is_direct:
                await self._fire(reaction)
        except ReactionNotFound:
            return
        except (CallFailed, EncodeError, TooLarge) as error:
            # It would fail again, and hold up other ends.
            _log.error("%s: giving up reaction %s to its end: %s", what, reaction.name, error)

    async def _fire(self, reaction: Reaction) -> None:
        try:
            (pending,) = await read_pending(self._stored, [reaction_record_key(self._app.name, reaction.name)])
            await self._calls.fire(reaction, pending)
        except ReactionNotFound:
            # It was removed meanwhile.
            return


def _by_task(reactions: Iterable[Reaction]) -> Mapping[str, list[Awaiting]]:
    found: defaultdict[str, list[Awaiting]] = defaultdict(list)
    for reaction in reactions:
        for number, condition in enumerate(reaction.plan.conditions):
            if isinstance(condition, JobEnds):
                for task in condition.tasks:
                    found[task].append(Awaiting(reaction, number, condition))
    return dict(found)


def _to_runs(reactions: Iterable[Reaction]) -> list[AwaitingRun]:
    return [
        AwaitingRun(reaction, number, condition)
        for reaction in reactions
        for number, condition in enumerate(reaction.plan.conditions)
        if isinstance(condition, WorkflowRunEnds)
    ]


def _root_of(body: bytes) -> str | None:
    try:
        return decode_envelope(body).root
    except MalformedMessage:
        return None

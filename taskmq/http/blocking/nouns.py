"""What belongs to the installation: definitions, schedules, workflows, queues, dead letters, workers, tasks."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from taskmq.api.dead_letters import (
    LetterGroups,
    LetterGroupView,
    LetterList,
    LetterQueues,
    LetterView,
    PurgeLettersBody,
    ReplayBody,
    ReplayedView,
)
from taskmq.api.definitions import DefinitionBody, DefinitionList, DefinitionVersions, DefinitionView
from taskmq.api.queues import (
    MoveBody,
    MovedView,
    PauseBody,
    PurgeBody,
    PurgedView,
    QueueLines,
    QueuePauseView,
    QueueView,
    ResumedView,
)
from taskmq.api.schedules import (
    BackfillBody,
    BackfillView,
    ChangeScheduleBody,
    InstantList,
    PauseScheduleBody,
    PutScheduleBody,
    RuleExplanation,
    ScheduleExplanation,
    ScheduleLine,
    ScheduleList,
    ScheduleRule,
    ScheduleView,
)
from taskmq.api.values import PriorityLevel
from taskmq.api.workers import (
    CancelFlowBody,
    TaskList,
    TaskView,
    WorkflowLineView,
    WorkflowList,
    WorkflowState,
    WorkflowView,
)
from taskmq.http.blocking.connection import HttpConnection, every
from taskmq.http.retries import seconds_of_duration
from taskmq.model.units import Duration
from taskmq.workflow.service import Redriven

__all__ = [
    "DeadLetterCalls",
    "DefinitionCalls",
    "QueueCalls",
    "ScheduleCalls",
    "TaskCalls",
    "WorkflowCalls",
]

_Answer = dict[str, str]


class DefinitionCalls:
    """Definitions: named, versioned templates that jobs are made from.

    Methods raise `DefinitionNotFound`, and `DefinitionConflict` where another version is there.
    """

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def put(
        self,
        name: str,
        task: str,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        priority: PriorityLevel | None = None,
        expires: Duration | None = None,
        description: str = "",
        labels: Mapping[str, str] | None = None,
        version: int | None = None,
    ) -> DefinitionView:
        """Make a version with this content, unless the last one says the same.

        Args:
            version: that the last one has to have.
        """
        body = DefinitionBody(
            task=task,
            args=[*args],
            kwargs=dict(kwargs or {}),
            priority=priority,
            expires_in=seconds_of_duration(expires, "expires"),
            description=description,
            labels=dict(labels or {}),
        )
        # The same content again makes no version; of another one the server says that it is there.
        is_free = version is None
        return self._connection.ask(
            "putDefinition", DefinitionView, path={"name": name}, body=body, version=version, repeats=is_free
        )

    def get(self, name: str, *, version: int | None = None) -> DefinitionView:
        """The last version, or this one, also of a definition that was deleted."""
        query = {"version": version}
        return self._connection.ask("getDefinition", DefinitionView, path={"name": name}, query=query)

    def versions(self, name: str, *, before: int | None = None, limit: int = 50) -> Sequence[DefinitionView]:
        """Its versions below `before`, the last one first."""
        query = {"before": before, "limit": limit}
        path = {"name": name}
        return (self._connection.ask("listDefinitionVersions", DefinitionVersions, path=path, query=query)).items

    def delete(self, name: str, *, version: int | None = None) -> None:
        """Make no more jobs from it; its versions are kept."""
        self._connection.ask("deleteDefinition", _Answer, path={"name": name}, version=version)

    def page(self, prefix: str = "", *, limit: int = 50, cursor: str | None = None) -> DefinitionList:
        """A page of the definitions whose names begin so."""
        query = {"prefix": prefix, "limit": limit, "cursor": cursor}
        return self._connection.ask("listDefinitions", DefinitionList, query=query)

    def list(self, prefix: str = "", *, page_size: int = 200) -> Iterator[DefinitionView]:
        """All definitions whose names begin so, by name, each in its last version."""
        return every(lambda cursor: self.page(prefix, limit=page_size, cursor=cursor))


class ScheduleCalls:
    """The schedules of the server's app."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def get(self, name: str) -> ScheduleView:
        """A schedule, and what has become of its occurrences."""
        return self._connection.ask("getSchedule", ScheduleView, path={"name": name})

    def add(self, name: str, body: PutScheduleBody) -> ScheduleView:
        """As `put`, where there is none of that name; the same again changes nothing.

        Raises:
            InvalidOption: another one has the name.
        """
        path = {"name": name}
        return self._connection.ask("putSchedule", ScheduleView, path=path, body=body, version=0, repeats=True)

    def put(self, name: str, body: PutScheduleBody) -> ScheduleView:
        """Start a task whenever the schedule says, from now on; what the body does not say has its default."""
        return self._connection.ask("putSchedule", ScheduleView, path={"name": name}, body=body)

    def change(self, name: str, body: ChangeScheduleBody) -> ScheduleView:
        """Change what the body says of a schedule that was made at run time; all else stays, its counts too.

        Raises:
            ScheduleNotFound: there is none of that name.
            InvalidOption: it is defined in the code, or cannot be so.
        """
        return self._connection.ask("changeSchedule", ScheduleView, path={"name": name}, body=body)

    def remove(self, name: str) -> None:
        """Let a schedule that was made at run time not be due any more."""
        self._connection.ask("removeSchedule", _Answer, path={"name": name})

    def next(self, name: str, *, count: int = 5, after: datetime | None = None) -> Sequence[str | None]:
        """The instants at which it is due next, whether or not it is paused."""
        query = {"count": count, "after": after}
        return (self._connection.ask("getNextOccurrences", InstantList, path={"name": name}, query=query)).items

    def explain(self, name: str, *, count: int = 5) -> ScheduleExplanation:
        """What it means in words, and when it is due next by the clocks of its zone."""
        query = {"count": count}
        return self._connection.ask("explainSchedule", ScheduleExplanation, path={"name": name}, query=query)

    def explain_rule(self, body: ScheduleRule, *, count: int = 5) -> RuleExplanation:
        """What a rule means in words, and when something is due by it, before it is kept."""
        query = {"count": count}
        return self._connection.ask("explainRule", RuleExplanation, query=query, body=body)

    def pause(self, name: str, *, note: str = "") -> ScheduleView:
        """Have nothing emitted until it is resumed."""
        body = PauseScheduleBody(note=note)
        return self._connection.ask("pauseSchedule", ScheduleView, path={"name": name}, body=body)

    def resume(self, name: str) -> ScheduleView:
        """Have a paused schedule go on."""
        return self._connection.ask("resumeSchedule", ScheduleView, path={"name": name})

    def run(self, name: str) -> str:
        """Send a call of its task now; the job's id."""
        return (self._connection.ask("runSchedule", _Answer, path={"name": name}))["job_id"]

    def backfill(self, name: str, start: datetime, end: datetime, *, dry_run: bool = False) -> BackfillView:
        """Emit the occurrences of a range of the past, at low priority and a few a second."""
        body = BackfillBody(start=start, end=end, dry_run=dry_run)
        return self._connection.ask("backfillSchedule", BackfillView, path={"name": name}, body=body)

    def page(self, prefix: str = "", *, limit: int = 50, cursor: str | None = None) -> ScheduleList:
        """A page of the schedules whose names begin so."""
        query = {"prefix": prefix, "limit": limit, "cursor": cursor}
        return self._connection.ask("listSchedules", ScheduleList, query=query)

    def list(self, prefix: str = "", *, page_size: int = 200) -> Iterator[ScheduleLine]:
        """All schedules whose names begin so, by name."""
        return every(lambda cursor: self.page(prefix, limit=page_size, cursor=cursor))


class WorkflowCalls:
    """Workflows, by their ids."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def get(self, workflow_id: str) -> WorkflowView:
        """How far a workflow is, step by step."""
        return self._connection.ask("getWorkflow", WorkflowView, path={"workflow_id": workflow_id})

    def cancel(self, workflow_id: str, *, reason: str | None = None) -> None:
        """End a workflow: what has not started never will, what runs is stopped."""
        body = CancelFlowBody() if reason is None else CancelFlowBody(reason=reason)
        self._connection.ask("cancelWorkflow", _Answer, path={"workflow_id": workflow_id}, body=body)

    def close(self, workflow_id: str) -> None:
        """Have no more jobs come to a batch: it ends when those that it has have ended.

        Raises:
            FlowClosed: it was cancelled, or is no batch.
        """
        self._connection.ask("closeWorkflow", _Answer, path={"workflow_id": workflow_id})

    def redrive(self, workflow_id: str) -> Redriven:
        """Run again what has not succeeded."""
        return self._connection.ask("redriveWorkflow", Redriven, path={"workflow_id": workflow_id})

    def page(
        self,
        *,
        name: str | None = None,
        states: Sequence[WorkflowState] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> WorkflowList:
        """A page of the workflows, the newest first.

        Args:
            name: that they have, with `*` and `?`.
            states: one of these; none: all.
            since: sent from this instant on.
            until: sent before this instant.
        """
        query = {
            "name": name,
            "states": ",".join(states) or None,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
        }
        return self._connection.ask("listWorkflows", WorkflowList, query=query)

    def list(
        self,
        *,
        name: str | None = None,
        states: Sequence[WorkflowState] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 200,
    ) -> Iterator[WorkflowLineView]:
        """All workflows of the kind, the newest first; see `page`."""
        return every(
            lambda cursor: self.page(
                name=name, states=states, since=since, until=until, limit=page_size, cursor=cursor
            )
        )


class QueueCalls:
    """Queues at the broker. Methods raise `QueueMissing`."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def get(self, name: str, *, within: float = 1.0) -> QueueView:
        """What broker, state and workers know of one queue.

        Args:
            within: seconds that workers have to answer.
        """
        return self._connection.ask("getQueue", QueueView, path={"name": name}, query={"within": within})

    def pause(self, name: str, *, note: str = "") -> QueuePauseView:
        """Have no worker start anything of it until it is resumed; what runs goes on."""
        body = PauseBody(note=note)
        return self._connection.ask("pauseQueue", QueuePauseView, path={"name": name}, body=body)

    def resume(self, name: str) -> bool:
        """Have workers take from it again; whether it was paused."""
        return (self._connection.ask("resumeQueue", ResumedView, path={"name": name})).was_paused

    def purge(self, name: str) -> int:
        """Delete its waiting messages, in all priority classes; how many they were."""
        body = PurgeBody(name=name)
        return (self._connection.ask("purgeQueue", PurgedView, path={"name": name}, body=body)).purged

    def move(self, name: str, to: str, *, count: int | None = None, task: str | None = None) -> MovedView:
        """Move its waiting messages to another queue; how many, and how many that one cannot take.

        Args:
            count: at most so many.
            task: only those of tasks of this name, with `*` and `?`.
        """
        body = MoveBody(name=name, to=to, count=count, task=task)
        return self._connection.ask("moveMessages", MovedView, path={"name": name}, body=body)

    def list(self, *, within: float = 1.0) -> QueueLines:
        """The app's queues in all their priority classes, and their dead-letter queues."""
        return self._connection.ask("listQueues", QueueLines, query={"within": within})


class DeadLetterCalls:
    """Dead letters at the broker."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def queues(self) -> Sequence[str]:
        """The queues that have dead letters."""
        return (self._connection.ask("listDeadLetterQueues", LetterQueues)).items

    def groups(self, queue: str) -> Sequence[LetterGroupView]:
        """The failures behind the letters of a queue, the most frequent first."""
        return (self._connection.ask("groupDeadLetters", LetterGroups, path={"queue": queue})).items

    def replay(self, queue: str, which: ReplayBody | None = None) -> ReplayedView:
        """Send the jobs of letters again: those of `which`, and as it says."""
        body = which or ReplayBody()
        return self._connection.ask("replayDeadLetters", ReplayedView, path={"queue": queue}, body=body)

    def purge(
        self,
        queue: str,
        *,
        task: str | None = None,
        error: str | None = None,
        fingerprint: str | None = None,
        job: str | None = None,
    ) -> int:
        """Delete the letters that are meant, all where nothing is said; how many they were."""
        body = PurgeLettersBody(name=queue, task=task, error=error, fingerprint=fingerprint, job=job)
        return (self._connection.ask("purgeDeadLetters", PurgedView, path={"queue": queue}, body=body)).purged

    def list(
        self,
        queue: str,
        *,
        task: str | None = None,
        error: str | None = None,
        fingerprint: str | None = None,
        job: str | None = None,
        limit: int = 50,
    ) -> Sequence[LetterView]:
        """The oldest letters of a queue that are meant; they stay where they are."""
        query = {"task": task, "error": error, "fingerprint": fingerprint, "job": job, "limit": limit}
        return (self._connection.ask("listDeadLetters", LetterList, path={"queue": queue}, query=query)).items


class TaskCalls:
    """What can be called."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def get(self, name: str) -> TaskView:
        """One task, with the JSON Schema of its arguments; `UnknownTask` where there is none."""
        return self._connection.ask("getTask", TaskView, path={"name": name})

    def page(self, *, limit: int = 50, cursor: str | None = None) -> TaskList:
        """A page of the tasks."""
        return self._connection.ask("listTasks", TaskList, query={"limit": limit, "cursor": cursor})

    def list(self, *, page_size: int = 200) -> Iterator[TaskView]:
        """All tasks of the app and those that were registered, by name."""
        return every(lambda cursor: self.page(limit=page_size, cursor=cursor))

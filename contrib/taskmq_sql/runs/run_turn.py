"""A run while it is advanced, and the rows that it writes besides those of its steps."""

from collections.abc import Iterator
from typing import Any, Final

from taskmq.contracts.jobs import Advanced, DispatchBatch, Lane, NewJob, Submitted
from taskmq.model.runs.machine import has_work
from taskmq.model.runs.records import InboxRow, RunChanges, RunRecord, RunState, StepKey
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.workspace import Workspace
from taskmq.model.states import JobState
from taskmq_sql.runs.inbox import Inbox
from taskmq_sql.runs.places import PlaceChange
from taskmq_sql.runs.starts import RUN_CODES, encode_run
from taskmq_sql.steps import JobId

_ENDS: Final[dict[RunState, StepState]] = {
    RunState.SUCCEEDED: StepState.SUCCEEDED,
    RunState.FAILED: StepState.FAILED,
    RunState.CANCELLED: StepState.CANCELLED,
}


class RunTurn:
    """A run while it is advanced.

    Attributes:
        here: the run with its changes.
        applied: number of rows that were applied.
        refused: ends of steps that got no job or no child run.
        version: the run's version before.
        batch: the dispatched job of a step; None: every new job waits for its dispatch.
    """

    def __init__(self, here: Workspace, inbox: Inbox) -> None:
        self.here: Workspace = here
        self.version: str = here.run.version
        self.inbox: Inbox = inbox
        self.applied = 0
        self.refused: list[InboxRow] = []
        self.batch: DispatchBatch | None = None
        self.lanes: set[Lane] = set()
        self.woken: list[str] = []
        self.asked: list[str] = []
        here.put_steps(inbox.steps)

    @property
    def id(self) -> str:
        """Id of the run."""
        return self.here.run.id

    @property
    def changes(self) -> RunChanges:
        """Changes of the run."""
        return self.here.changes

    @property
    def events(self) -> list[InboxRow]:
        """Rows that were applied."""
        return self.inbox.events[: self.applied]

    @property
    def kept_marks(self) -> int:
        """Number of marks that stay in the inbox."""
        return 1 if has_work(self.here.run) and self.inbox.marks else 0

    def refuse(self, job: str, key: StepKey, reason: str) -> None:
        """Let a step fail that gets no job or no child run."""
        self.refused.append(
            InboxRow(
                number=0, kind="end", job=job, step=key.name, child=key.child, state=StepState.FAILED, error=reason
            )
        )

    def note_submission(self, job: NewJob, answer: Submitted) -> None:
        """Record the result of the submission of a step's job."""
        assert job.step is not None
        if not answer.is_new:
            self.refuse(job.id, StepKey(job.step.name, job.step.child), _describe(answer))
        elif answer.state is JobState.QUEUED:
            self.lanes.add(Lane(job.queue, job.priority, job.tenant))

    def describe(self) -> Advanced:
        """Return the effect of the advance on the run."""
        run, inbox, changes = self.here.run, self.inbox, self.changes
        parents = [run.parent] if changes.has_ended and run.parent else []
        return Advanced(
            lanes=frozenset(self.lanes),
            batch=self.batch,
            has_more=has_work(run) or self.applied < len(inbox.events) or inbox.is_cut or bool(self.refused),
            ended=run if changes.has_ended else None,
            asked=tuple(self.asked),
            timer=min((each.at for each in changes.timers), default=None),
            woken=(*self.woken, *parents, *changes.cancelled_runs, *changes.held_runs),
        )

    def new_rows(self) -> Iterator[tuple[str, InboxRow | None]]:
        """Yield the rows that the run adds to its own inbox, and to those of its child runs and its parent."""
        run, changes = self.here.run, self.changes
        for row in self.refused:
            yield run.id, row
        for child in changes.cancelled_runs:
            yield child, InboxRow(number=0, kind="cancel", error=run.cancelled or "")
        for child in changes.held_runs:
            yield child, _hold_of_child(run)
        if has_work(run) and not self.kept_marks:
            yield run.id, None
        if changes.has_ended and run.parent:
            yield (
                run.parent,
                InboxRow(
                    number=0,
                    kind="end",
                    step=run.parent_step,
                    job=run.id,
                    state=_ENDS[run.state],
                    value=changes.value or b"null",
                    error=run.error or run.cancelled or "",
                ),
            )

    def row(self) -> tuple[object, ...]:
        """Return the row of the run."""
        run = self.here.run
        state = RUN_CODES[run.state]
        record = encode_run(run)
        return JobId(run.id), run.tenant, run.workflow, run.version, state, run.ended, record, self.changes.value

    def applied_rows(self) -> list[Any]:
        """Return the addresses of the rows that are no longer needed."""
        return self.inbox.addresses([row.number for row in self.events] + self.inbox.marks[self.kept_marks :])

    def place_change(self) -> PlaceChange | None:
        """Return the change of the run's place; None if there is none."""
        run, most = self.here.run, self.here.graph.content.max_active_runs
        change = PlaceChange(run, most or 0, leaves=self.changes.has_ended, waits=run.state is RunState.QUEUED)
        return change if most is not None and not run.parent and (change.leaves or change.waits) else None


def _describe(answer: Submitted) -> str:
    """Return why a job was not created."""
    if answer.refusal is not None:
        return f"the job depends on job {answer.refusal.id}, and that is {answer.refusal.reason}"
    return f"job {answer.id} exists already and has the job's key"


def _hold_of_child(run: RunRecord) -> InboxRow:
    """Return the row that passes the hold of a run, or its release, to a child run."""
    if run.hold is None:
        return InboxRow(number=0, kind="release", is_from_above=True)
    reason = run.held_above if run.held is None else f"run {run.id} is held: {run.held}"
    return InboxRow(number=0, kind="hold", error=reason or "", is_from_above=True)

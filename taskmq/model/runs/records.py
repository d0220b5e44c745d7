"""Runs, their steps and their inboxes, as stores keep them."""

from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

import msgspec

from taskmq.model.envelope import KeptPart
from taskmq.model.runs.rules import StepState, UpstreamCounts

MOST_VALUE_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of the value of a step in the store. Workers keep larger ones elsewhere, else the step fails."""

_MOST_JOBS: Final = 5


class RunState(StrEnum):
    """State of a run.

    A run of a workflow with `max_active_runs` is `queued` until it gets a place. A cancelled run is `running` until
    all its steps have ended.
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepKey(NamedTuple):
    """A step of a run, or with a number from 0 one of its children."""

    name: str
    child: int = -1

    @property
    def is_child(self) -> bool:
        """Whether it is a child."""
        return self.child >= 0


class StepRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A step or a child.

    Attributes:
        generation: redrive of the run that it last belonged to; 0: none.
        job: its job, or its child run.
        earlier: jobs and child runs of its earlier generations, the last few.
        upstream: ends of its upstream steps.
        total: number of children, None if unknown; of a batch, of those added.
        cursor: number of children that were considered for a start.
        active: number of running children.
        done: number of children that have succeeded.
        is_open: of a batch, whether it takes calls.
        is_partial: whether children that have succeeded are kept in this generation.
        since: earliest generation whose children are kept.
        call: of a child of a batch, its call as JSON.
        quota: exhausted quota that its job, or that of its next child, waits for; "": none.
        refusals: number of consecutive times that the quota had no room.
        started, ended: ms since the epoch by the store's clock.
    """

    key: StepKey
    state: StepState = StepState.WAITING
    generation: int = 0
    job: str = ""
    earlier: tuple[str, ...] = ()
    upstream: UpstreamCounts = msgspec.field(default_factory=UpstreamCounts)
    total: int | None = None
    cursor: int = 0
    active: int = 0
    done: int = 0
    is_open: bool = False
    is_partial: bool = False
    since: int = 0
    error: str = ""
    call: bytes = b""
    quota: str = ""
    refusals: int = 0
    started: int | None = None
    ended: int | None = None

    @property
    def jobs(self) -> tuple[str, ...]:
        """The earlier jobs and the present one, the last few."""
        return (*self.earlier, self.job)[-_MOST_JOBS:] if self.job else self.earlier

    @property
    def has_failed(self) -> bool:
        """Whether it failed by itself. Behind a failed step it is `upstream_failed` without an error."""
        return self.state is StepState.FAILED or (self.state is StepState.UPSTREAM_FAILED and bool(self.error))


class AgendaItem(msgspec.Struct, array_like=True):
    """A part of a transition that is not finished; it precedes every later inbox row.

    Attributes:
        kind: `begin`: of the roots; `visit`: of the steps that wait for `step`; `cancel`: of all steps;
            `cancel_children`: of those of `step`; `hold_runs`: of the child runs, which get the hold or
            the release of the run; `retry`: of `step`, which waits for a quota; `revive`, `recount`, `decide`: of
            a redrive; `finish`: of the run.
        step: name of a step; of a redrive, of the first step that runs again, "" for all without success.
        cursor: number of steps that are done.
    """

    kind: Literal[
        "begin", "visit", "cancel", "cancel_children", "hold_runs", "retry", "revive", "recount", "decide", "finish"
    ]
    step: str = ""
    cursor: int = 0


class RunRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A run: its parameters, its progress and its end.

    Attributes:
        params: JSON object.
        unfinished: number of steps that have not ended, without children.
        failures: number of steps that have failed, except those that may fail.
        generation: number of redrives.
        timeout: maximum duration, counted again from each redrive, ms; None: no limit. Time held does not count.
        deadline: when its timeout cancels it, ms since the epoch; a release postpones it. None: not known.
        cancelled: why it was cancelled; None if it was not.
        is_timed_out: whether its timeout cancelled it; it ends as failed.
        held: why an operator holds it; None if none does.
        held_above: the hold of a run above it; None if none is held.
        held_since: since when it is held, ms since the epoch; None if it is not.
        releases: number of releases.
        agenda: parts of transitions that are not finished.
        expanding: names of steps that may start more children.
        signals: number of signals that wait for a step.
        parent, parent_step: step that started it; "" if none did.
        depth: number of runs above it.
        error: why it failed.
        scheduled_for: instant of its occurrence in ISO 8601; "" if no schedule started it.
        begun: when it last got a place, ms since the epoch; None if it never waited for one.
    """

    id: str
    tenant: str = ""
    workflow: str = ""
    version: str = ""
    state: RunState = RunState.RUNNING
    params: bytes = b"{}"
    unfinished: int = 0
    failures: int = 0
    generation: int = 0
    timeout: int | None = None
    deadline: int | None = None
    cancelled: str | None = None
    is_timed_out: bool = False
    held: str | None = None
    held_above: str | None = None
    held_since: int | None = None
    releases: int = 0
    agenda: list[AgendaItem] = msgspec.field(default_factory=list[AgendaItem])
    expanding: list[str] = msgspec.field(default_factory=list[str])
    signals: int = 0
    parent: str = ""
    parent_step: str = ""
    depth: int = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    scheduled_for: str = ""
    created: int = 0
    begun: int | None = None
    error: str = ""
    ended: int | None = None

    @property
    def hold(self) -> str | None:
        """The reason why no step starts until the run is released, cancelled or has ended; None if it is not held."""
        return self.held_above if self.held is None else self.held

    @property
    def timer(self) -> int:
        """The generation of the timer of its timeout: a redrive and a release replace the timer."""
        return self.generation + self.releases


InboxKind = Literal["end", "timer", "signal", "cancel", "redrive", "add", "close", "hold", "release", "begin"]


class InboxRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a run. Rows apply in the order of their numbers.

    Attributes:
        number: position in the inbox of all runs.
        id: the sender's; a second row with the same id is not stored and gets the answer of the first. "": none.
        step, child: step or child that it is about; of a signal, the only step that may consume it, "" for any.
        job: of an end, the job or child run that ended.
        state: of an end, the state of the step.
        generation: of a timer or a signal, the only generation of the step that it counts for; None: any. Of a
            `begin`, the only generation of the run.
        name: of a signal, its name.
        value: of an end or a signal, as `open_value` reads it.
        error: of an end, its error; of a cancel or a hold, the reason.
        is_from_above: whether the run's parent sent this hold or release.
        roles: of a signal, the roles of its sender; None if the sender is not identified.
        calls: of an `add`, at most 200 calls as JSON.
    """

    number: int
    kind: InboxKind
    id: str = ""
    step: str = ""
    child: int = -1
    job: str = ""
    state: StepState = StepState.SUCCEEDED
    generation: int | None = None
    name: str = ""
    value: bytes = b"null"
    error: str = ""
    is_from_above: bool = False
    roles: tuple[str, ...] | None = None
    calls: tuple[msgspec.Raw, ...] = ()


class StepJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to submit for a step or a child; arguments are JSON, with null in the place of each of the `parts`."""

    id: str
    key: StepKey
    generation: int
    task: str
    args: bytes
    kwargs: bytes
    options: dict[str, Any]
    parts: tuple[KeptPart, ...] = ()


class ChildRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to start for a step."""

    id: str
    key: StepKey
    generation: int
    workflow: str
    params: bytes
    depth: int


class QuotaWait(NamedTuple):
    """The wait of a job for a quota: a text about the quota, and when to ask again, ms since the epoch."""

    quota: str
    at: int


class StepTimer(NamedTuple):
    """A timer of a step, or with "" of the run: it counts for this generation, or `RunRecord.timer`, only."""

    at: int
    step: str
    generation: int


class RunChanges(msgspec.Struct):
    """Changes of one transaction, besides the run itself.

    Attributes:
        values: values of steps and children, as `open_value` reads them.
        cancelled_jobs, cancelled_runs: ids of those whose cancellation is requested.
        held_runs: ids of child runs that get the run's hold or its release.
        answers: by the number of an inbox row, the effect for its sender; `waiting`: the signal is kept.
        value: of a run that succeeded, its value, as `open_value` reads it.
        content: the run's new content, if a step has built it.
        has_ended: whether the run ended.
    """

    steps: dict[StepKey, StepRecord] = msgspec.field(default_factory=dict[StepKey, StepRecord])
    values: dict[StepKey, bytes] = msgspec.field(default_factory=dict[StepKey, bytes])
    jobs: list[StepJob] = msgspec.field(default_factory=list[StepJob])
    runs: list[ChildRun] = msgspec.field(default_factory=list[ChildRun])
    timers: list[StepTimer] = msgspec.field(default_factory=list[StepTimer])
    cancelled_jobs: list[str] = msgspec.field(default_factory=list[str])
    cancelled_runs: list[str] = msgspec.field(default_factory=list[str])
    held_runs: list[str] = msgspec.field(default_factory=list[str])
    answers: dict[int, str] = msgspec.field(default_factory=dict[int, str])
    value: bytes | None = None
    content: bytes | None = None
    has_ended: bool = False

    @property
    def size(self) -> int:
        """Number of rows to write."""
        return (
            len(self.steps)
            + len(self.values)
            + len(self.jobs)
            + len(self.runs)
            + len(self.timers)
            + len(self.cancelled_jobs)
            + len(self.cancelled_runs)
            + len(self.held_runs)
            + len(self.answers)
        )

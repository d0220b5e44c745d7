"""Runs of workflows, their steps and signals."""

from typing import Any, Literal

import msgspec

from taskmq.api.jobs import ResultProblem
from taskmq.api.values import Note, ShortText


class CancelRunBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason, shown with the run."""

    reason: Note = "cancelled by an operator"


class RedriveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The steps that run again.

    Attributes:
        step: the first one, with all steps below it. Default: all steps without success.
        dry_run: only return the steps that would run again.
    """

    step: ShortText = ""
    dry_run: bool = False


class RedrivenRun(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a redrive.

    Attributes:
        status: `redriven`, or `dry_run` if nothing was changed.
        steps: names of the steps that run again, each after the steps before it.
    """

    run_id: str
    status: Literal["redriven", "dry_run"]
    steps: list[str]


class HoldRunBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason, shown with the run."""

    reason: Note = "held by an operator"


class CloneRunBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of the same content as another one.

    Attributes:
        params: parameters that differ from those of the other run.
        run_id: an id; cloning to it again changes nothing. Default: generated.
    """

    params: dict[str, Any] = {}
    run_id: ShortText | None = None


class SignalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal for a run.

    Attributes:
        signal: the name that a step waits for.
        value: the value of the step.
        step: the only step that may take it. Default: the first one that waits.
        signal_id: sending it again changes nothing, and returns the first answer. Default: generated.
    """

    signal: ShortText
    value: Any = None
    step: ShortText = ""
    signal_id: ShortText | None = None


class SignalledRun(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a signal.

    Attributes:
        effect: `consumed` by a step, `waiting` in the run for a step, or `sent` if no scheduler has read it yet.
    """

    run_id: str
    signal_id: str
    effect: Literal["consumed", "waiting", "sent"]


RunStateWord = Literal["queued", "running", "succeeded", "failed", "cancelled"]
StepStateWord = Literal["waiting", "running", "succeeded", "failed", "upstream_failed", "skipped", "cancelled"]


class RunStepMark(msgspec.Struct, frozen=True, kw_only=True):
    """A step in a list of runs.

    Attributes:
        kind: as that of `RunStepView`.
        generation: the redrive that it last belonged to; 0 for none.
    """

    step: str
    kind: str
    state: StepStateWord
    started: str | None
    ended: str | None
    generation: int


class RunLineView(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list.

    Attributes:
        version: the version of the workflow that it runs.
        cancelled: why it is or was cancelled.
        held: why it is held: no step starts until it is released; None if it is not.
        begun: when it last got one of the places of `max_active_runs`; None if it waits for one, or needs none.
        steps: the number of its steps.
        unfinished: the number of steps that have not ended.
        failures: the number of failed steps whose failure is the run's.
        generation: how often it was redriven.
        scheduled_for: the instant of its schedule's occurrence; "" if no schedule started it.
        parent, parent_step: the run and step that started it; "" if none did.
        marks: with `expand=steps`, its first 100 steps, each after the steps before it; otherwise None.
    """

    run_id: str
    workflow: str
    version: str
    tenant: str
    state: RunStateWord
    cancelled: str | None
    held: str | None = None
    error: str
    started: str | None
    begun: str | None = None
    ended: str | None
    steps: int
    unfinished: int
    failures: int
    generation: int
    scheduled_for: str
    parent: str
    parent_step: str
    labels: dict[str, str]
    marks: list[RunStepMark] | None = None


class RunPlaceView(msgspec.Struct, frozen=True, kw_only=True):
    """The place that a queued run waits for.

    Attributes:
        active: the number of active runs of its workflow and tenant.
        most: the maximum of them, `max_active_runs`.
        ahead: the number of queued runs that begin before it.
    """

    active: int
    most: int
    ahead: int


class WorkflowRunView(RunLineView, frozen=True, kw_only=True):
    """A run with its parameters and its value.

    Attributes:
        params: its parameters; None for callers who may not read jobs.
        value: its value, if it succeeded; None for callers who may not read jobs.
        value_problem: why a run that succeeded has no `value`; None if it has one.
        place: the place that it waits for; None if it is not queued.
    """

    params: dict[str, Any] | None
    value: Any
    value_problem: ResultProblem | None = None
    place: RunPlaceView | None = None


class RunLineList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs, newest first.

    Attributes:
        next: the `cursor` of the next page; None on the last page.
        is_bounded: whether the search stopped before the page was full; the next page continues from there.
    """

    items: list[RunLineView]
    next: str | None
    is_bounded: bool = False


class RunStepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a run.

    Attributes:
        kind: `task`, `each`, `batch`, `wait`, `sleep`, `workflow` or `value`.
        task: the task or workflow that it runs; "" for others.
        needs: the steps before it.
        job_id: its job, or the run that it started.
        generation: the redrive that it last belonged to; 0 for none.
        total, active, done: of a step with children, how many it has, how many run and how many have succeeded.
        is_open: of a batch, whether it takes more jobs.
        quota: the exhausted quota that its job, or that of its next child, waits for; "" for none.
        signal, form, roles: of a wait, the signal, the JSON Schema of its value, and the roles that may send it.
    """

    step: str
    kind: str
    task: str
    state: StepStateWord
    needs: list[str]
    job_id: str
    generation: int
    error: str
    started: str | None
    ended: str | None
    total: int | None = None
    active: int = 0
    done: int = 0
    is_open: bool = False
    quota: str = ""
    signal: str = ""
    form: dict[str, Any] | None = None
    roles: list[str] = []


class RunStepList(msgspec.Struct, frozen=True):
    """Steps of a run, ordered by name. `next` is the `cursor` of the next page."""

    items: list[RunStepView]
    next: str | None


class RunChildView(msgspec.Struct, frozen=True, kw_only=True):
    """A child of a step: one of the calls of an `each` or a batch.

    Attributes:
        number: its place among the children of its step, from 0.
        job_id: its job, or the run that it started.
    """

    number: int
    state: StepStateWord
    job_id: str
    error: str
    started: str | None
    ended: str | None


class RunChildList(msgspec.Struct, frozen=True):
    """Children of a step that have started, in order. `next` is the `cursor` of the next page."""

    items: list[RunChildView]
    next: str | None


class RunGraphView(msgspec.Struct, frozen=True, kw_only=True):
    """The graph of a run: its steps, each after the steps before it.

    Attributes:
        params: JSON Schemas of its parameters, by name.
    """

    run_id: str
    workflow: str
    version: str
    steps: list[RunStepView]
    params: dict[str, Any] = {}


class TimelineAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of a job in the timeline of its run."""

    attempt: int
    state: str
    started: str | None
    ended: str | None
    worker: str


class TimelineInterruption(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that does not count as an attempt: its worker was lost or stopped, or it was preempted."""

    started: str | None
    at: str | None
    worker: str


class TimelineJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a step, with the times at which it waited and ran.

    Attributes:
        schedule_time: its original due time; `due_at` is that of its last or next attempt.
    """

    job_id: str
    state: str
    submitted_at: str | None
    schedule_time: str | None
    due_at: str | None
    ended: str | None
    attempts: list[TimelineAttempt]
    interruptions: list[TimelineInterruption]


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a run, or a child of a step, over time.

    Attributes:
        child: the number of the child; None for a step.
        ready: when the last of the steps before it ended, or of a first step when the run began; None if one has not.
        started, ended: times of its present generation.
        total: of a step with children, how many it has.
        jobs: its jobs, oldest first: the present one, after up to four of earlier redrives. Jobs that were deleted
            are missing, and so are those of children, which have rows of their own.
    """

    step: str
    child: int | None
    kind: str
    state: StepStateWord
    ready: str | None
    started: str | None
    ended: str | None
    total: int | None
    jobs: list[TimelineJob]


class RunTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a run over time, each after the steps before it. `next` is the `cursor` of the next page."""

    items: list[TimelineRow]
    next: str | None

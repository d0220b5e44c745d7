"""Workers and the other parts of an installation, tasks and workflows."""

from typing import Annotated, Any, Literal

import msgspec

from taskmq.api.values import Note, ShortText

__all__ = [
    "CancelFlowBody",
    "ControlBody",
    "ControlledWorker",
    "ControlledWorkers",
    "HealthReport",
    "PartView",
    "RunView",
    "StepView",
    "TaskList",
    "TaskView",
    "WorkerList",
    "WorkerView",
    "WorkflowLineView",
    "WorkflowList",
    "WorkflowState",
    "WorkflowView",
]


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run that goes on, for so many seconds."""

    job_id: str
    task: str
    queue: str
    attempt: int
    seconds: float


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process, as it last reported itself.

    Attributes:
        state: starting, running, disconnected or draining.
        slots: how many runs may go on at a time; `running`: how many do.
        backlog: deliveries that wait for a slot.
        memory: resident bytes; `descriptors`: that the process has open.
        jobs: the longest of its runs.
        app: `module:attribute`, or the app's name.
        in_hand: how many deliveries of each queue are in hand: those that run and those that wait here.
        ended: runs that have ended.
        abandoned: threads that were given up and have not returned.
        unsettled: jobs that have run and keep their slots because their outcomes cannot be settled.
        loop_lag: seconds by which the event loop was late, at most, in the last ten of them.
        node: the host node that it works for.
    """

    name: str
    host: str
    pid: int
    version: str
    queues: list[str]
    paused: list[str]
    state: str
    slots: int
    running: int
    backlog: int
    memory: int
    started: str | None
    jobs: list[RunView]
    app: str
    in_hand: dict[str, int]
    ended: int
    abandoned: int
    unsettled: int
    descriptors: int
    loop_lag: float
    node: str | None


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """The condition of one part of the installation.

    Attributes:
        status: `works`; `partly`; `down`; `unknown` where it could not be asked; `absent` where the app has none.
        since: when this server first saw it so, without another condition in between.
        finding: what was seen, without names, addresses and numbers.
        without: what does not work without this part.
    """

    part: Literal["store", "broker", "state", "schedulers", "workers"]
    status: Literal["works", "partly", "down", "unknown", "absent"]
    since: str | None
    finding: str
    without: str


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """The condition of the installation.

    Attributes:
        works: no part is down, wholly or partly.
    """

    works: bool
    parts: list[PartView]


class WorkerList(msgspec.Struct, frozen=True):
    """The workers that have answered."""

    items: list[WorkerView]


class ControlBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What workers are to do. Say which: by `workers`, `host`, or `all`.

    Attributes:
        command: `drain`: take nothing new, give what runs its grace, and exit; `concurrency`: run `number` tasks at a
            time until the process ends; `stacks`: say where all threads and tasks are, by files, lines and functions
        workers: names.
        host: the workers of a host.
        grace: of `drain`, seconds: what runs longer goes back to its queue; None: as each worker's `--grace` says.
    """

    command: Literal["drain", "concurrency", "stacks"]
    workers: Annotated[list[ShortText], msgspec.Meta(max_length=1_000)] = []
    host: ShortText = ""
    all: bool = False
    number: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    grace: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] | None = None


class ControlledWorker(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker has answered.

    Attributes:
        verdict: `done`; `refused`, see `detail`; `unknown`: its version does not know the command.
        text: of `stacks`.
        status: how it is, after the command.
    """

    worker: str
    verdict: str
    detail: str
    text: str
    status: WorkerView


class ControlledWorkers(msgspec.Struct, frozen=True):
    """What workers have answered in time; `missing` are those that were named and have not."""

    items: list[ControlledWorker]
    missing: list[str]


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task that can be called, with the schema of its arguments.

    Attributes:
        description: the first line of its documentation.
        is_own: the server's own app has it; else a worker or a scheduler has registered it.
        positional: the parameters that may be given by place.
        rest: the parameter that takes all further ones, "" where none does.
        arguments: a JSON Schema of its arguments by name.
        first, registered: when a worker or a scheduler has registered it first, and last; None of one that none has.
        by, origin: who has registered it last, and whether that was an `app` or came over the `broker`; "" for
            callers without a role on the instance.
        options: what its jobs have that say nothing else; None for callers without a role on the instance.
    """

    name: str
    queue: str
    description: str
    is_own: bool
    positional: list[str]
    rest: str
    arguments: dict[str, Any]
    first: str | None
    registered: str | None
    by: str
    origin: Literal["app", "broker", ""]
    options: dict[str, Any] | None


class TaskList(msgspec.Struct, frozen=True):
    """Tasks by name; `next` is what to say as `cursor` for the next page."""

    items: list[TaskView]
    next: str | None


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a workflow.

    Attributes:
        task: "" for one that only waits for others.
        after: the names of the steps before it.
        part_of: of a call of `each(...)` or a batch, the name of that step.
        error: type and message, of one that has failed.
    """

    step: str
    task: str
    state: str
    attempts: int | None
    error: str | None
    after: list[str] = []
    part_of: str | None = None


WorkflowState = Literal["running", "succeeded", "failed", "cancelled"]


class WorkflowLineView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow in a list.

    Attributes:
        name: that it was sent with, its schedule's, or the task of its first step; not unique.
        cancelled: why it was cancelled.
        nodes: of its graph, what only waits for others among them; the calls of maps and batches count.
        unfinished: how many of them have not ended.
    """

    workflow_id: str
    name: str
    tenant: str
    state: WorkflowState
    cancelled: str | None
    started: str | None
    nodes: int
    unfinished: int


class WorkflowList(msgspec.Struct, frozen=True, kw_only=True):
    """Workflows, the newest first.

    Attributes:
        next: what to say as `cursor` for the next page; None at the end.
        is_bounded: the search stopped before the page was full; the next page goes on from there.
    """

    items: list[WorkflowLineView]
    next: str | None
    is_bounded: bool = False


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow; `cancelled` is why it was cancelled."""

    workflow_id: str
    tenant: str
    state: WorkflowState
    cancelled: str | None
    steps: list[StepView]


class CancelFlowBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for callers that await its result."""

    reason: Note = "cancelled by an operator"

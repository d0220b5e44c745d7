"""Workers, tasks and workflows."""

from typing import Any, Literal

import msgspec

from taskmq.api.values import Note

__all__ = [
    "CancelFlowBody",
    "RunView",
    "StepView",
    "TaskList",
    "TaskView",
    "WorkerList",
    "WorkerView",
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
    """A worker process.

    Attributes:
        state: starting, running, disconnected or draining.
        slots: how many runs may go on at a time; `running`: how many do.
        backlog: deliveries that wait for a slot.
        memory: resident bytes.
        jobs: the longest of its runs.
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


class WorkerList(msgspec.Struct, frozen=True):
    """The workers that have answered."""

    items: list[WorkerView]


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task.

    Attributes:
        description: the first line of its documentation.
        is_own: the server's own app has it; else a worker or a scheduler has registered it.
        positional: the parameters that may be given by place.
        arguments: a JSON Schema of its arguments by name.
    """

    name: str
    queue: str
    description: str
    is_own: bool
    positional: list[str]
    arguments: dict[str, Any]


class TaskList(msgspec.Struct, frozen=True):
    """Tasks by name; `next` is what to say as `cursor` for the next page."""

    items: list[TaskView]
    next: str | None


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a workflow.

    Attributes:
        task: "" for one that only waits for others.
        error: type and message, of one that has failed.
    """

    step: str
    task: str
    state: str
    attempts: int | None
    error: str | None


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow; `cancelled` is why it was cancelled."""

    workflow_id: str
    tenant: str
    state: Literal["running", "succeeded", "failed", "cancelled"]
    cancelled: str | None
    steps: list[StepView]


class CancelFlowBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What those are told who await its result."""

    reason: Note = "cancelled by an operator"

"""One delivery that was understood: which job, which task, which attempt."""

from typing import TYPE_CHECKING, Any

import msgspec

from taskmq.contracts.broker import Delivery
from taskmq.model.envelope import Envelope
from taskmq.model.resources import Grant
from taskmq.run.execution import Execution
from taskmq.tasks.task import Task

if TYPE_CHECKING:
    from taskmq.worker.guards.base import Pass

__all__ = ["Attempt"]


class Attempt(msgspec.Struct, eq=False):
    """A delivery, read.

    Attributes:
        job_id: from the body, else the message id, else made here.
        started: when the function was called, in ms; None when it was not.
        execution: its run, from just before the function is called.
        cancelled: why the run is being cancelled; None unless somebody asked for it.
        is_clean: whether the run has left the context variables as they were.
        grant: what it was given of the worker's resources; None when it needs none.
        passes: what its gates have given it, and it has not left; None without gates.
        fence: the idempotency key that the run holds, and the token under which it does.
        is_turned_back: whether a gate has given it an outcome instead of a run.
    """

    delivery: Delivery
    envelope: Envelope
    task: Task[..., Any]
    job_id: str
    started: int | None = None
    execution: Execution | None = None
    cancelled: str | None = None
    is_clean: bool = True
    grant: Grant | None = None
    passes: "list[Pass] | None" = None
    is_turned_back: bool = False
    fence: tuple[str, int] | None = None

"""One delivery that was understood: which job, which task, which attempt."""

from dataclasses import dataclass
from typing import Any

from taskmq.broker import Delivery
from taskmq.envelope import Envelope
from taskmq.tasks import Task

__all__ = ["Attempt"]


@dataclass(slots=True)
class Attempt:
    """A delivery, read.

    Attributes:
        job_id: from the body, else the message id, else made here.
        started: when the function was called, in ms; None when it was not.
    """

    delivery: Delivery
    envelope: Envelope
    task: Task[..., Any]
    job_id: str
    started: int | None = None

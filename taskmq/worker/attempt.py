"""One delivery that was understood: which job, which task, which attempt."""

from typing import Any, Protocol

import msgspec

from taskmq.contracts.broker import Delivery
from taskmq.contracts.stores import ResultRecord
from taskmq.model.envelope import Envelope
from taskmq.model.outcome import Outcome
from taskmq.model.resources import Grant
from taskmq.run.execution import Execution
from taskmq.tasks.task import Task

__all__ = ["Attempt", "Permit"]


class Permit(Protocol):
    """What a guard gave one run."""

    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:
        """The run has ended. Called before its result is stored, its copy published or its delivery settled.

        Args:
            record: how the job ended, where the outcome ends it; None where it goes on. Its value is empty where the
                task keeps no results.

        Returns:
            False: another run holds by now what the permit stood for, so the outcome does not count; the
            delivery goes back.

        Raises:
            StateUnavailable, SendError: it is called again, until it succeeds or the worker stops; then the delivery
                goes back.
        """
        ...


class Attempt(msgspec.Struct, eq=False):
    """One attempt of a job: a delivery that was read, from its start to its outcome.

    Attributes:
        job_id: from the body, else the message id, else made here.
        started: when the function was called, in ms; None when it was not.
        execution: its run, from just before the function is called.
        cancelled: why the run is being cancelled; None unless that was asked for.
        preempted: why the run is to give way to others; None unless a scheduler asked for it.
        is_clean: whether the run has left the context variables as they were.
        grant: what it was given of the worker's resources; None when it needs none.
        permits: what its guards gave it and it has not released; None without guards.
        fence: the idempotency key that the run holds, and the token under which it does.
        outages: how many outages have interrupted it while its shard held its delivery.
        is_turned_back: whether a guard gave it an outcome instead of a run.
    """

    delivery: Delivery
    envelope: Envelope
    task: Task[..., Any]
    job_id: str
    started: int | None = None
    execution: Execution | None = None
    cancelled: str | None = None
    preempted: str | None = None
    is_clean: bool = True
    grant: Grant | None = None
    permits: list[Permit] | None = None
    is_turned_back: bool = False
    fence: tuple[str, int] | None = None
    outages: int = 0

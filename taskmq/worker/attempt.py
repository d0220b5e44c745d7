"""A delivery that was decoded: its job, its task, its attempt."""

from typing import Any, Protocol

import msgspec

from taskmq.contracts.broker import Delivery
from taskmq.contracts.stores import ResultRecord
from taskmq.model.envelope import Envelope
from taskmq.model.outcome import Outcome
from taskmq.model.resources import Grant
from taskmq.options.plans import TaskPlan
from taskmq.run.execution import Execution
from taskmq.tasks.task import Task


class Permit(Protocol):
    """The right of one run that a guard granted."""

    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:
        """Release the permit of an ended run.

        Called before the outcome's result is stored, its copy published or its delivery settled.

        Args:
            record: the end of the job, if the outcome ends it; None if the job continues. Its value is empty if the
                task keeps no results.

        Returns:
            False if another run has acquired what the permit stood for: the outcome does not count, and the delivery
            is returned.

        Raises:
            StateUnavailable, SendError: it is called again, until it succeeds or the worker stops; then the delivery
                is returned.
        """
        ...


class Attempt(msgspec.Struct, eq=False):
    """An attempt of a job: a decoded delivery, from its start to its outcome.

    Attributes:
        job_id: from the body, else the message id, else generated here.
        started: when the function was called, in ms; None if it was not.
        execution: its run, from just before the function is called.
        cancelled: why the run is being cancelled; None if no one asked for it.
        preempted: why the run is preempted; None unless a scheduler asked for it.
        is_clean: whether the run left the context variables unchanged.
        grant: its share of the worker's resources; None if it needs none.
        permits: permits of its guards that are not released; None without guards.
        fence: the idempotency key that the run holds, with its fencing token.
        outages: number of outages that interrupted it while its shard held its delivery.
        is_turned_back: whether a guard decided its outcome instead of letting it run.
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

    @property
    def plan(self) -> TaskPlan:
        """Options of its task, and those that its job overrides."""
        run = self.envelope.run
        return self.task.plan if run is None else self.task.plan.with_run(run)

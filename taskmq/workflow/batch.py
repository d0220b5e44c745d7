"""Batches: jobs that belong together, and are not all known when the first of them starts."""

from collections.abc import Sequence
from typing import Any

from taskmq.errors import InvalidOption
from taskmq.model.units import Duration
from taskmq.workflow.model.contents import ContentBuilder, batch_call
from taskmq.workflow.parts import OpenStep, SingleStep, Step, Workflow
from taskmq.workflow.runs.handle import Run
from taskmq.workflow.runs.service import RunService
from taskmq.workflow.step_call import StepTask

Callback = Step[Any] | OpenStep[list[Any], Any]

# No name of a user begins like this.
_FIRST_JOBS = "/"


class Batch(Workflow[list[Any]]):
    """Parallel jobs, to which others are added until the batch is closed. Its value is the list of their values."""

    __slots__ = ("jobs", "limit", "on_end", "on_success")

    def __init__(
        self, jobs: tuple[Step[Any], ...], *, on_success: Callback | None, on_end: Callback | None, limit: int | None
    ) -> None:
        if limit is not None and limit < 1:
            raise InvalidOption(f"batch: limit={limit}: must be at least 1, or None for no limit")
        for job in jobs:
            if not isinstance(job, Step):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidOption(f"{job!r} is not a job of a batch: use task.s(...) with all its arguments")
        for name, one in (("on_success", on_success), ("on_end", on_end)):
            if one is not None and not isinstance(one, SingleStep):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidOption(f"{name}={one!r}: must be one step, task.s(...) or task.si(...)")
        self.jobs: tuple[Step[Any], ...] = jobs
        self.on_success: Callback | None = on_success
        self.on_end: Callback | None = on_end
        self.limit: int | None = limit

    def first_task(self) -> StepTask | None:
        steps = (*self.jobs, self.on_success, self.on_end)
        return next((step.first_task() for step in steps if step is not None), None)

    def add_to(self, builder: ContentBuilder, before: Sequence[Any]) -> Any:  # noqa: ARG002 - refused
        raise InvalidOption(
            "a batch cannot be a part of another workflow; use its on_success= or on_end= for the next step"
        )

    def build(self, builder: ContentBuilder) -> Any:
        jobs: Any = builder.batch(limit=self.limit)
        if self.on_success is not None:
            self.on_success.add_to(builder, [jobs.source])
        if self.on_end is not None:
            self.on_end.add_to(builder, [jobs.source], rule="always")
        return builder.plan(jobs)

    async def _start(
        self,
        service: RunService,
        run_id: str | None,
        tenant: str | None,
        name: str | None,
        timeout: Duration | None,
    ) -> Run[list[Any]]:
        calls = [batch_call(job.call) for job in self.jobs]
        run = await super()._start(service, run_id, tenant, name, timeout)
        await service.put_calls(run.id, calls, key=_FIRST_JOBS)
        return run


def batch(
    *jobs: Step[Any],
    on_success: Step[Any] | OpenStep[list[Any], Any] | None = None,
    on_end: Step[Any] | OpenStep[list[Any] | None, Any] | None = None,
    limit: int | None = None,
) -> Batch:
    """Create a batch of jobs; the first ones start when it is sent, and `Run.add` adds more.

    It ends when it was closed by `Run.close`, and all its jobs have ended. It belongs to the app of its first job,
    or of its callback, so it needs one of them.

    Args:
        on_success: step that runs once all have succeeded; unless it is an `si(...)`, it gets the list of their
            values.
        on_end: step that runs once all have ended, successful or not; unless it is an `si(...)`, it gets the list, or
            None if one has failed.
        limit: maximum of concurrent jobs; None: no limit.

    Raises:
        InvalidOption: a part is not a step, or the limit is invalid.
    """
    return Batch(jobs, on_success=on_success, on_end=on_end, limit=limit)

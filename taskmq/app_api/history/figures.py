"""Statistics of runs, and lists of failures."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime

from taskmq.api.history.figures import (
    DayUsageView,
    FailureLane,
    FailureList,
    FailureView,
    MissingSource,
    RollupList,
    RollupView,
)
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import bound_of, instant_text, render_all, view_of
from taskmq.model.history.rollups import Rollup
from taskmq.model.units import to_datetime
from taskmq.operations.history import (
    FailureChoice,
    FailureLine,
    FailureSource,
    LettersView,
    TenantFailures,
    TenantFigures,
)
from taskmq.operations.history.failure_lines import SOURCES


class AppFigures(AppCalls):
    """Statistics of runs, and failures, in both lanes."""

    async def rollups(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        task: str | None = None,
        queue: str | None = None,
        by: Sequence[str] = ("task", "queue"),
    ) -> RollupList:
        """Return counts, waiting times and run times of a period, by default the last hour.

        Data exists from the time a scheduler first recorded events. Events may be lost, so do not use counts for
        accounting.

        Raises:
            InvalidOption: a dimension is unknown, or the result is too large.
        """
        figures = TenantFigures(self._app, self._caller.tenant)
        begin, end, found = await figures.totals(
            since=bound_of(since), until=bound_of(until), task=task, queue=queue, by=tuple(by)
        )
        return RollupList(since=instant_text(begin), until=instant_text(end), items=render_all(_rollup, found))

    async def usage(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        task: str | None = None,
        queue: str | None = None,
        by: Sequence[str] = ("tenant", "task", "queue"),
    ) -> Sequence[DayUsageView]:
        """Return counts, waiting, running and processor seconds of jobs by day, by default of the last seven days.

        Events of workers may be lost, so the figures are estimates.

        Raises:
            InvalidOption: a dimension is unknown, or the result is too large.
        """
        figures = TenantFigures(self._app, self._caller.tenant)
        found = await figures.usage(
            since=bound_of(since), until=bound_of(until), task=task, queue=queue, by=tuple(by)
        )
        return render_all(_usage, found)

    async def failures(
        self,
        *,
        lane: FailureLane | None = None,
        task: str | None = None,
        queue: str | None = None,
        job_id: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
        traceback: bool = False,
        sources: Collection[FailureSource] = SOURCES,
        letters: Callable[[], Awaitable[LettersView]] | None = None,
    ) -> FailureList:
        """List failures, the newest first: stored jobs, sent jobs, dead letters, workflows.

        A workflow is listed at the time it was sent; it has no task, queue or error. Only the oldest 1,000 dead
        letters of each queue are examined. Sources that could not be read are listed in `missing`.

        Args:
            lane: only this lane.
            job_id: only this sent job.
            traceback: include the ends of tracebacks.
            sources: the sources to read. Default: all.
            letters: reads dead letters, instead of the default.

        Raises:
            InvalidOption: the cursor is malformed.
        """
        which = FailureChoice(
            lane=lane, task=task, queue=queue, job=job_id, error=error, since=bound_of(since), until=bound_of(until)
        )
        failures = TenantFailures(self._app, self._caller.tenant, sources=sources, letters=letters)
        page = await failures.page(which, after=cursor or None, limit=limit)
        return FailureList(
            items=render_all(lambda line: _failure(line, has_traceback=traceback), page.lines),
            next=page.after,
            missing=[MissingSource(gap.source, gap.why) for gap in page.gaps],
        )


def _usage(found: Rollup) -> DayUsageView:
    outcomes = found.outcomes
    return DayUsageView(
        day=to_datetime(found.key.minute).date().isoformat(),
        tenant=found.key.tenant,
        task=found.key.task,
        queue=found.key.queue,
        runs=found.ran.count,
        ended=found.ended,
        succeeded=outcomes.get("succeeded", 0) + outcomes.get("answered", 0),
        failed=found.failed,
        cancelled=outcomes.get("cancelled", 0),
        retried=outcomes.get("retried", 0),
        waiting_seconds=round(found.waited.total, 3),
        running_seconds=round(found.ran.total, 3),
        processor_seconds=round(found.processor, 3),
    )


def _rollup(one: Rollup) -> RollupView:
    return RollupView(
        task=one.key.task,
        queue=one.key.queue,
        tenant=one.key.tenant,
        outcomes=one.outcomes,
        ended=one.ended,
        failed=one.failed,
        failure_rate=one.failure_rate,
        wait_p50=one.waited.quantile(0.5),
        wait_p95=one.waited.quantile(0.95),
        wait_p99=one.waited.quantile(0.99),
        run_p50=one.ran.quantile(0.5),
        run_p95=one.ran.quantile(0.95),
        run_p99=one.ran.quantile(0.99),
        run_total=round(one.ran.total, 6),
    )


def _failure(line: FailureLine, *, has_traceback: bool) -> FailureView:
    return view_of(
        FailureView,
        line,
        job_id=line.id,
        at=instant_text(line.at),
        traceback=line.traceback if has_traceback else None,
    )

"""Figures of runs, and lists of failures."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime

from taskmq.api.history.figures import FailureLane, FailureList, FailureView, MissingSource, RollupList, RollupView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, milliseconds_of, rendered
from taskmq.model.history.rollups import Rollup
from taskmq.operations.history import (
    FailureChoice,
    FailureLine,
    FailureSource,
    LettersView,
    TenantFailures,
    TenantFigures,
)
from taskmq.operations.history.failures import SOURCES

__all__ = ["AppFigures"]


class AppFigures(AppCalls):
    """Figures of runs, and failures, of both lanes."""

    async def rollups(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        task: str | None = None,
        queue: str | None = None,
        by: Sequence[str] = ("task", "queue"),
    ) -> RollupList:
        """Counts, waits and run times of a time, by default of the last hour.

        They are there from when a scheduler first listened on. Events may be lost, so counts are not for accounting.

        Raises:
            InvalidOption: there is no such part, or the answer is too long.
        """
        figures = TenantFigures(self._app, self._caller.tenant)
        begin, end, found = await figures.totals(
            since=_ms(since), until=_ms(until), task=task, queue=queue, by=tuple(by)
        )
        return RollupList(since=instant_text(begin), until=instant_text(end), items=rendered(_rollup, found))

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
        """List failures, the newest first: jobs of the store, jobs that were sent, dead letters, workflows.

        A workflow counts at the time it was sent; it has no task, queue and error. Of each queue the oldest 1,000
        dead letters are looked at. What could not be asked is in `missing`, and the rest is there.

        Args:
            lane: those of one lane alone.
            job_id: of one job that was sent.
            traceback: with the ends of their tracebacks.
            sources: that are asked. Default: all.
            letters: looks at dead letters, in place of a look of its own.

        Raises:
            InvalidOption: the cursor is none.
        """
        which = FailureChoice(
            lane=lane, task=task, queue=queue, job=job_id, error=error, since=_ms(since), until=_ms(until)
        )
        failures = TenantFailures(self._app, self._caller.tenant, sources=sources, letters=letters)
        page = await failures.page(which, after=cursor or None, limit=limit)
        return FailureList(
            items=rendered(lambda line: _failure(line, has_traceback=traceback), page.lines),
            next=page.after,
            missing=[MissingSource(gap.source, gap.why) for gap in page.gaps],
        )


def _ms(instant: datetime | None) -> int | None:
    return None if instant is None else max(milliseconds_of(instant), 0)


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
    return FailureView(
        lane=line.lane,
        job_id=line.id,
        name=line.name,
        at=instant_text(line.at),
        event=line.event,
        task=line.task,
        queue=line.queue,
        tenant=line.tenant,
        worker=line.worker,
        attempt=line.attempt,
        seconds=line.seconds,
        error=line.error,
        reason=line.reason,
        message=line.message,
        summary=line.summary,
        letter=line.letter,
        remedy=line.remedy,
        is_handled=line.is_handled,
        retried_as=line.retried_as,
        traceback=line.traceback if has_traceback else None,
    )

"""Failures of all kinds in one list: stored jobs, jobs sent to the broker, dead letters and workflows."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.history import FailureFilter, history_of
from taskmq.contracts.jobs import JobRecord, RunFilter
from taskmq.errors import TaskMQError
from taskmq.model.history.rollups import RunFailure
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.keys import tenant_key
from taskmq.model.outcome import error_line
from taskmq.model.runs.records import RunRecord, RunState
from taskmq.model.states import JobState
from taskmq.model.topology import PARKING, logical_queue
from taskmq.model.units import DAY_MS
from taskmq.operations.dead_letters import DeadLetter, list_queues_with_letters, visit
from taskmq.operations.history.failure_lines import (
    LANE_OF,
    SOURCES,
    FailureChoice,
    FailureCursor,
    FailureLine,
    FailureSource,
    FailuresPage,
    LettersView,
    SourceGap,
    parse_cursor,
    sort_key,
)
from taskmq.operations.tenant_jobs import TenantJobs

_FAILED: Final = frozenset({JobState.FAILED, JobState.EXPIRED, JobState.UPSTREAM_FAILED})
_WIDER: Final = 8
# Most failures of one time window; a window with more is narrowed.
_MOST: Final = 1_000
_PAGE: Final = 500
_DEPTH: Final = 1_000


_C = TypeVar("_C")
_Lines = Callable[[FailureChoice, FailureCursor | None, int], Awaitable[list[FailureLine]]]
_Read = Callable[[int, int, _C | None], Awaitable[tuple[Iterable[FailureLine], _C | None]]]
"""Reads a page of the failures between two instants, after a cursor; returns the next cursor, too."""


class TenantFailures:
    """The failures that a caller may see.

    Args:
        tenant: tenant that owns them; "" means failures without a tenant, None means all.
        sources: sources that the caller may read.
        letters: reads the dead letters of all tenants; several callers may share one view.
    """

    def __init__(
        self,
        app: TaskMQ,
        tenant: str | None,
        *,
        sources: Collection[FailureSource] = SOURCES,
        letters: Callable[[], Awaitable[LettersView]] | None = None,
    ) -> None:
        self._app = app
        self._tenant = tenant
        self._sources = sources
        self._read_letters = letters or (lambda: read_letters(app))
        self._jobs = TenantJobs(app, tenant, by="")

    async def page(self, which: FailureChoice, *, after: str | None = None, limit: int = 50) -> FailuresPage:
        """Return up to `limit` failures, newest first.

        Failures that occur between two pages sort before the first page, so no failure appears twice. A source that
        cannot be read is named in the page's gaps, and the others are shown.

        Args:
            after: the `after` of the previous page.

        Raises:
            InvalidOption: `after` is not a cursor of this list.
        """
        cursor = parse_cursor(after) if after else None
        if which.until is None:
            # Workers' clocks may be ahead of this one.
            which = replace(which, until=self._app.sessions.clock.now_ms() + DAY_MS)
        gaps: list[SourceGap] = []
        letters = None if self._is_excluded(which, "dead letters", gaps) else await self._find_letters(gaps)
        reads: dict[FailureSource, _Lines] = {
            "jobs": self._read_jobs,
            "failures": self._read_reports,
            "workflows": self._read_workflows,
        }
        found: list[FailureLine] = []
        for source, read in reads.items():
            if not self._is_excluded(which, source, gaps):
                found += await self._collect(source, read(which, cursor, limit + 1), gaps)
        if letters is not None:
            found = _mark_letters(found, letters)
            unknown = self._find_unreported(which, letters, cursor, limit + 1)
            found += await self._collect("dead letters", unknown, gaps)
        found.sort(key=sort_key, reverse=True)
        last = found[limit - 1].cursor if len(found) > limit else None
        return FailuresPage(lines=found[:limit], after=None if last is None else f"{last.at}.{last.key}", gaps=gaps)

    def _is_excluded(self, which: FailureChoice, source: FailureSource, gaps: list[SourceGap]) -> bool:
        """Whether the source has nothing to show to this caller; notes a gap if it may not be read."""
        if which.lane not in (None, LANE_OF[source]) or (which.job is not None and LANE_OF[source] != "broker"):
            return True
        if source == "workflows" and (which.task, which.queue, which.error) != (None, None, None):
            return True
        if source not in self._sources:
            gaps.append(SourceGap(source, "you are not permitted to see them"))
            return True
        return False

    async def _collect(
        self, source: FailureSource, lines: Awaitable[list[FailureLine]], gaps: list[SourceGap]
    ) -> list[FailureLine]:
        try:
            return await lines
        except TaskMQError as error:
            gaps.append(SourceGap(source, str(error)))
            return []

    async def _find_letters(self, gaps: list[SourceGap]) -> LettersView | None:
        try:
            view = await self._read_letters()
        except TaskMQError as error:
            gaps.append(SourceGap("dead letters", str(error)))
            return None
        if view.bounded:
            names = ", ".join(sorted(view.bounded))
            gaps.append(SourceGap("dead letters", f"only the oldest {_DEPTH:,} of {names} were read"))
        return view

    async def _read_jobs(self, which: FailureChoice, cursor: FailureCursor | None, limit: int) -> list[FailureLine]:
        fixed = JobFilter(
            states=_FAILED,
            # Retried failures are marked, not left out.
            retried="any",
            tasks=() if which.task is None else (which.task,),
            queues=() if which.queue is None else (which.queue,),
            errors=() if which.error is None else (which.error,),
        )

        async def read(since: int, until: int, after: str | None) -> tuple[Iterable[FailureLine], str | None]:
            part = replace(fixed, finished_from=since, finished_before=until)
            page = await self._jobs.list(part, after=after, limit=_PAGE)
            return map(self._describe_job, page.jobs), page.after

        return await _read_newest(read, which, cursor, limit)

    async def _read_reports(
        self, which: FailureChoice, cursor: FailureCursor | None, limit: int
    ) -> list[FailureLine]:
        store = history_of(self._app.sessions.store()).rollups
        fixed = FailureFilter(
            task=which.task, queue=which.queue, error=which.error, job=which.job, tenant=self._tenant
        )

        async def read(since: int, until: int, after: int | None) -> tuple[Iterable[FailureLine], int | None]:
            page = await store.failures(replace(fixed, since=since, until=until), after=after, limit=_PAGE)
            return map(_describe_report, page.failures), page.after

        return await _read_newest(read, which, cursor, limit)

    async def _read_workflows(
        self, which: FailureChoice, cursor: FailureCursor | None, limit: int
    ) -> list[FailureLine]:
        runs = self._app.sessions.store().runs

        async def read(since: int, until: int, after: str | None) -> tuple[Iterable[FailureLine], str | None]:
            part = RunFilter(tenant=self._tenant, states=(RunState.FAILED,), since=since, until=until)
            page = await runs.list_runs(part, after=after, limit=_PAGE)
            return map(self._describe_run, page.runs), page.after

        return await _read_newest(read, which, cursor, limit)

    async def _find_unreported(
        self, which: FailureChoice, view: LettersView, cursor: FailureCursor | None, limit: int
    ) -> list[FailureLine]:
        """Return the letters without a report from a worker, or whose report is no longer kept."""
        matching = [line for line in view.lines if self._matches(which, line, cursor)]
        lines = sorted(matching, key=sort_key, reverse=True)
        found: list[FailureLine] = []
        for begin in range(0, len(lines), _PAGE):
            part = lines[begin : begin + _PAGE]
            reported = await self._find_reported({line.id for line in part})
            found += [line for line in part if line.id not in reported]
            if len(found) >= limit:
                break
        return found[:limit]

    def _matches(self, which: FailureChoice, line: FailureLine, cursor: FailureCursor | None) -> bool:
        at = line.at or 0
        return (
            self._tenant in (None, line.tenant)
            and which.task in (None, line.task)
            and which.queue in (None, line.queue)
            and which.error in (None, line.error)
            and which.job in (None, line.id)
            and (which.since is None or at >= which.since)
            and (which.until is None or at < which.until)
            and (cursor is None or line.cursor < cursor)
        )

    async def _find_reported(self, jobs: set[str]) -> set[str]:
        if self._app.sessions.current().store is None:
            return set()
        store = history_of(self._app.sessions.store()).rollups
        found: set[str] = set()
        after: int | None = None
        while True:
            page = await store.failures(FailureFilter(jobs=frozenset(jobs)), after=after, limit=_PAGE)
            found |= {one.job for one in page.failures}
            if (after := page.after) is None:
                return found

    def _describe_job(self, record: JobRecord) -> FailureLine:
        error = record.error
        type_name, message = ("", "") if error is None else (error.type_name, error.message)
        ran = None if None in (record.started, record.finished) else (record.finished or 0) - (record.started or 0)
        return FailureLine(
            lane="store",
            id=self._jobs.name_of(record),
            at=record.finished,
            event=record.state,
            tenant=record.tenant,
            task=record.task,
            queue=record.queue,
            attempt=record.attempt,
            worker=record.worker,
            seconds=None if ran is None else ran / 1000,
            error=type_name,
            message=message,
            summary=error_line(type_name, message),
            traceback="" if error is None else error.traceback,
            # A failed step is repaired by its run, which has a line of its own.
            remedy="" if record.retried_as or (record.detail and record.detail.step_of) else "retry",
            is_handled=bool(record.retried_as),
            retried_as=record.retried_as,
        )

    def _describe_run(self, run: RunRecord) -> FailureLine:
        return FailureLine(
            lane="workflow",
            id=run.id if self._tenant is not None else tenant_key(run.tenant or None, run.id),
            name=run.workflow,
            at=run.created,
            event=run.state,
            tenant=run.tenant,
            summary=run.error,
            remedy="redrive",
            is_handled=False,
        )


async def read_letters(app: TaskMQ, *, depth: int = _DEPTH) -> LettersView:
    """Read the oldest `depth` dead letters of each queue of the app, including parked and unroutable messages.

    Raises:
        BrokerUnavailable: the broker could not be reached.
    """
    broker = app.sessions.current().broker
    lines: list[FailureLine] = []
    bounded: set[str] = set()
    for name in await list_queues_with_letters(broker, [queue.name for queue in app.tasks.queues]):
        count = await visit(broker, name, partial(_add_letter, lines, name), depth=depth + 1)
        if count > depth:
            bounded.add(name)
    return LettersView(lines=lines, bounded=frozenset(bounded))


def _add_letter(lines: list[FailureLine], name: str, letter: DeadLetter) -> None:
    # A stored job ends in the store, independently of its message.
    if letter.is_stored:
        return
    message = letter.error.removeprefix(letter.error_type).removeprefix(": ")
    lines.append(
        FailureLine(
            lane="broker",
            id=letter.job_id,
            at=letter.died or letter.enqueued,
            event="parked" if name == PARKING else "dead",
            tenant=letter.tenant,
            task=letter.task,
            queue=logical_queue(letter.queue) if letter.queue else "",
            attempt=letter.attempt,
            worker=letter.worker,
            error=letter.error_type,
            message=message,
            summary=error_line(letter.error_type, message) or letter.reason,
            reason=letter.reason,
            letter=name,
            remedy="replay",
            is_handled=False,
        )
    )


def _describe_report(failure: RunFailure) -> FailureLine:
    return FailureLine(
        lane="broker",
        id=failure.job,
        at=failure.at,
        event=failure.event,
        tenant=failure.tenant,
        task=failure.task,
        queue=failure.queue,
        attempt=failure.attempt,
        worker=failure.worker,
        seconds=failure.seconds,
        error=failure.error,
        message=failure.message,
        summary=error_line(failure.error, failure.message) or failure.reason,
        traceback=failure.traceback,
        reason=failure.reason,
        number=failure.number,
    )


def _mark_letters(lines: Iterable[FailureLine], view: LettersView) -> list[FailureLine]:
    """Add the queue of the dead letter to the lines of sent jobs, or mark them as handled if it is gone."""
    letters = {line.id: line.letter for line in view.lines}

    def mark(line: FailureLine) -> FailureLine:
        if line.lane != "broker":
            return line
        if (letter := letters.get(line.id)) is not None:
            return replace(line, letter=letter, remedy="replay", is_handled=False)
        return line if line.queue in view.bounded else replace(line, is_handled=True)

    return [mark(line) for line in lines]


async def _read_newest(
    read: _Read[_C], which: FailureChoice, cursor: FailureCursor | None, limit: int
) -> list[FailureLine]:
    """Read the newest `limit` lines after a cursor, in time windows of two days first, then of longer ones."""
    assert which.until is not None
    since, end = which.since or 0, which.until if cursor is None else min(which.until, cursor.at + 1)
    found: list[FailureLine] = []
    width = 2 * DAY_MS
    while end > since and len(found) < limit:
        begin = max(since, end - width)
        lines = await _read_pages(read, begin, end, _MOST if end - begin > 1 else None)
        if lines is None:
            width = max((end - begin) // _WIDER, 1)
            continue
        behind = [line for line in lines if cursor is None or line.cursor < cursor]
        found += sorted(behind, key=sort_key, reverse=True)
        end = begin
        width *= _WIDER
    return found[:limit]


async def _read_pages(read: _Read[_C], since: int, until: int, most: int | None) -> list[FailureLine] | None:
    """Return the failures between two instants; None if they exceed the given number."""
    lines: list[FailureLine] = []
    after: _C | None = None
    while most is None or len(lines) <= most:
        page, after = await read(since, until, after)
        lines += page
        if after is None:
            return lines
    return None

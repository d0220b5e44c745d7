"""List the failures of both lanes: jobs of the store, jobs that were sent, dead letters and workflows."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, Literal, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.history import FailureFilter, history_of
from taskmq.contracts.jobs import JobRecord
from taskmq.errors import InvalidOption, TaskMQError
from taskmq.model.history.rollups import RunFailure
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.keys import split_tenant_key
from taskmq.model.outcome import error_line
from taskmq.model.states import JobState
from taskmq.model.topology import PARKING, logical_queue
from taskmq.model.units import to_datetime
from taskmq.operations.dead_letters import DeadLetter, queues_with_letters, visit
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.workflow.workflows import WorkflowLine

__all__ = [
    "LANES",
    "FailureChoice",
    "FailureLane",
    "FailureLine",
    "FailureSource",
    "FailuresPage",
    "LettersLook",
    "SourceGap",
    "TenantFailures",
    "look_at_letters",
]

FailureLane = Literal["store", "broker", "workflow"]
"""The lane of a failure: submitted to the store, sent to the broker, or sent as a workflow."""
FailureSource = Literal["jobs", "failures", "dead letters", "workflows"]
"""The source that knows of a failure: the store's jobs, the history of what workers report, the broker, the state."""
Remedy = Literal["", "retry", "replay", "redrive"]

LANES: Final[tuple[FailureLane, ...]] = get_args(FailureLane)
_LANE_OF: Final[Mapping[FailureSource, FailureLane]] = {
    "jobs": "store",
    "failures": "broker",
    "dead letters": "broker",
    "workflows": "workflow",
}
SOURCES: Final[frozenset[FailureSource]] = frozenset(_LANE_OF)
_FAILED: Final = frozenset({JobState.FAILED, JobState.EXPIRED, JobState.UPSTREAM_FAILED})
_DAY: Final = 86_400_000
_WIDER: Final = 8
# What a window of time may have; of one with more a part is read.
_MOST: Final = 1_000
_PAGE: Final = 500
_DEPTH: Final = 1_000
_CURSOR: Final = re.compile(r"([0-9]{1,15})\.([0-9a-f]{27})")


class FailureChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of failures; what is None does not matter. A workflow has no task, queue and type of error.

    Attributes:
        lane: those of one lane.
        task, queue, error: a task's name, a queue as people name it, the type of an error.
        job: of one job that was sent.
        since, until: from this instant on, and before that one (ms).
    """

    lane: FailureLane | None = None
    task: str | None = None
    queue: str | None = None
    error: str | None = None
    job: str | None = None
    since: int | None = None
    until: int | None = None


class FailureLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job or a workflow that has failed.

    Attributes:
        id: what the caller calls the job, or the workflow.
        name: of a workflow.
        at: when it ended (ms); of a workflow, which does not know that, when it was sent; None where that is unknown.
        event: the job's state; of what was sent `dead`, or `parked` where no worker knew what to do with it.
        attempt: the one that was the last; 0 of workflows.
        error: the type's name.
        message: what the error said.
        summary: both in one line, cut.
        traceback: its end, where it is kept.
        reason: of a dead letter, see `taskmq.model.outcome.DeadReason`.
        letter: the queue among whose dead letters it is, as people name it.
        remedy: what runs it again.
        is_handled: something was done about it since: it was retried, or its dead letter is gone; None: unknown.
        retried_as: the job that is its repetition, where it was retried.
        number: of a report, the store's own, which grows; else 0.
    """

    lane: FailureLane
    id: str
    name: str = ""
    at: int | None
    event: str
    tenant: str = ""
    task: str = ""
    queue: str = ""
    attempt: int = 0
    worker: str = ""
    seconds: float | None = None
    error: str = ""
    message: str = ""
    summary: str = ""
    traceback: str = ""
    reason: str = ""
    letter: str | None = None
    remedy: Remedy = ""
    is_handled: bool | None = None
    retried_as: str = ""
    number: int = 0

    @property
    def place(self) -> "_Place":
        """Its place in the list, whatever else is in it."""
        digest = hashlib.sha256(f"{self.lane}\0{self.id}".encode(errors="surrogatepass")).hexdigest()[:16]
        return _Place(self.at or 0, f"{self.number:011x}{digest}")


class SourceGap(msgspec.Struct, frozen=True):
    """A source that could not be asked, or not to its end, and why."""

    source: FailureSource
    why: str


class FailuresPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some failures, the last one first; `after` is where the next page begins, None at the end."""

    lines: list[FailureLine]
    after: str | None
    gaps: list[SourceGap]


class LettersLook(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of all queues at one moment.

    Attributes:
        bounded: the queues that have more than was looked at.
    """

    lines: list[FailureLine]
    bounded: frozenset[str]


class _Place(NamedTuple):
    at: int
    key: str


_Lines = Callable[[FailureChoice, _Place | None, int], Awaitable[list[FailureLine]]]
_Read = Callable[[int, int, int | None], Awaitable[list[FailureLine] | None]]
"""The failures from one instant on and before another; None where they are more than so many."""


class TenantFailures:
    """The failures that a caller may see.

    Args:
        tenant: whose; "" of those that have no tenant, None everybody's.
        sources: those that the caller may ask.
        letters: looks at the dead letters of all tenants; several callers may share one look.
    """

    def __init__(
        self,
        app: TaskMQ,
        tenant: str | None,
        *,
        sources: Collection[FailureSource] = SOURCES,
        letters: Callable[[], Awaitable[LettersLook]] | None = None,
    ) -> None:
        self._app = app
        self._tenant = tenant
        self._sources = sources
        self._look = letters or (lambda: look_at_letters(app))
        self._jobs = TenantJobs(app, tenant, by="")

    async def page(self, which: FailureChoice, *, after: str | None = None, limit: int = 50) -> FailuresPage:
        """Up to `limit` of what has failed, the last one first.

        What ends while pages are read comes before the first one: a page never has what another one had. A source
        that cannot be asked is named in the page's gaps, and the others are shown.

        Args:
            after: the `after` of the page before.

        Raises:
            InvalidOption: that is no place in the list.
        """
        place = _place(after) if after else None
        if which.until is None:
            # Clocks of workers may be ahead of this one.
            which = replace(which, until=self._app.sessions.clock.now_ms() + _DAY)
        gaps: list[SourceGap] = []
        letters = None if self._lacks(which, "dead letters", gaps) else await self._letters(gaps)
        reads: dict[FailureSource, _Lines] = {
            "jobs": self._stored,
            "failures": self._reported,
            "workflows": self._workflows,
        }
        found: list[FailureLine] = []
        for source, read in reads.items():
            if not self._lacks(which, source, gaps):
                found += await self._asked(source, read(which, place, limit + 1), gaps)
        if letters is not None:
            found = _with_letters(found, letters)
            unknown = self._unreported(which, letters, place, limit + 1)
            found += await self._asked("dead letters", unknown, gaps)
        found.sort(key=_by_place, reverse=True)
        last = found[limit - 1].place if len(found) > limit else None
        return FailuresPage(lines=found[:limit], after=None if last is None else f"{last.at}.{last.key}", gaps=gaps)

    def _lacks(self, which: FailureChoice, source: FailureSource, gaps: list[SourceGap]) -> bool:
        """Whether the source has nothing to say, or not to this caller."""
        if which.lane not in (None, _LANE_OF[source]) or (which.job is not None and _LANE_OF[source] != "broker"):
            return True
        if source == "workflows" and (which.task, which.queue, which.error) != (None, None, None):
            return True
        if source not in self._sources:
            gaps.append(SourceGap(source, "you may not see them"))
            return True
        return False

    async def _asked(
        self, source: FailureSource, lines: Awaitable[list[FailureLine]], gaps: list[SourceGap]
    ) -> list[FailureLine]:
        try:
            return await lines
        except TaskMQError as error:
            gaps.append(SourceGap(source, str(error)))
            return []

    async def _letters(self, gaps: list[SourceGap]) -> LettersLook | None:
        try:
            look = await self._look()
        except TaskMQError as error:
            gaps.append(SourceGap("dead letters", str(error)))
            return None
        if look.bounded:
            names = ", ".join(sorted(look.bounded))
            gaps.append(SourceGap("dead letters", f"of {names} the oldest {_DEPTH:,} alone were looked at"))
        return look

    async def _stored(self, which: FailureChoice, place: _Place | None, limit: int) -> list[FailureLine]:
        fixed = JobFilter(
            states=_FAILED,
            # Those that were retried are marked, and not left out.
            retried="any",
            tasks=() if which.task is None else (which.task,),
            queues=() if which.queue is None else (which.queue,),
            errors=() if which.error is None else (which.error,),
        )

        async def read(since: int, until: int, most: int | None) -> list[FailureLine] | None:
            lines: list[FailureLine] = []
            after: str | None = None
            while most is None or len(lines) <= most:
                part = replace(fixed, finished_from=since, finished_before=until)
                page = await self._jobs.list(part, after=after, limit=_PAGE)
                lines += map(self._of_job, page.jobs)
                if (after := page.after) is None:
                    return lines
            return None

        return await _newest(read, which, place, limit)

    async def _reported(self, which: FailureChoice, place: _Place | None, limit: int) -> list[FailureLine]:
        store = history_of(self._app.sessions.store()).rollups
        fixed = FailureFilter(
            task=which.task, queue=which.queue, error=which.error, job=which.job, tenant=self._tenant
        )

        async def read(since: int, until: int, most: int | None) -> list[FailureLine] | None:
            lines: list[FailureLine] = []
            after: int | None = None
            while most is None or len(lines) <= most:
                part = replace(fixed, since=since, until=until)
                page = await store.failures(part, after=after, limit=_PAGE)
                lines += map(_of_report, page.failures)
                if (after := page.after) is None:
                    return lines
            return None

        return await _newest(read, which, place, limit)

    async def _workflows(self, which: FailureChoice, place: _Place | None, limit: int) -> list[FailureLine]:
        async def read(since: int, until: int, most: int | None) -> list[FailureLine] | None:
            lines: list[FailureLine] = []
            after: str | None = None
            while most is None or len(lines) <= most:
                page = await self._app.workflows.alist(
                    states=["failed"],
                    tenant=self._tenant,
                    since=to_datetime(since),
                    until=to_datetime(until),
                    after=after,
                    limit=_PAGE,
                )
                lines += map(self._of_workflow, page.lines)
                if (after := page.after) is None:
                    return lines
            return None

        return await _newest(read, which, place, limit)

    async def _unreported(
        self, which: FailureChoice, look: LettersLook, place: _Place | None, limit: int
    ) -> list[FailureLine]:
        """The letters of which workers have reported nothing, or nothing that is kept."""
        lines = sorted((line for line in look.lines if self._fits(which, line, place)), key=_by_place, reverse=True)
        found: list[FailureLine] = []
        for begin in range(0, len(lines), _PAGE):
            part = lines[begin : begin + _PAGE]
            reported = await self._are_reported({line.id for line in part})
            found += [line for line in part if line.id not in reported]
            if len(found) >= limit:
                break
        return found[:limit]

    def _fits(self, which: FailureChoice, line: FailureLine, place: _Place | None) -> bool:
        at = line.at or 0
        return (
            self._tenant in (None, line.tenant)
            and which.task in (None, line.task)
            and which.queue in (None, line.queue)
            and which.error in (None, line.error)
            and which.job in (None, line.id)
            and (which.since is None or at >= which.since)
            and (which.until is None or at < which.until)
            and (place is None or line.place < place)
        )

    async def _are_reported(self, jobs: set[str]) -> set[str]:
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

    def _of_job(self, record: JobRecord) -> FailureLine:
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
            remedy="" if record.retried_as else "retry",
            is_handled=bool(record.retried_as),
            retried_as=record.retried_as,
        )

    def _of_workflow(self, line: WorkflowLine) -> FailureLine:
        tenant, own_id = split_tenant_key(line.id)
        return FailureLine(
            lane="workflow",
            id=line.id if self._tenant is None else own_id,
            name=line.name,
            at=line.started or None,
            event=line.state,
            tenant=tenant,
            summary=f"{line.failed} of its {line.nodes} steps failed",
            remedy="redrive",
            is_handled=False,
        )


async def look_at_letters(app: TaskMQ, *, depth: int = _DEPTH) -> LettersLook:
    """The oldest `depth` dead letters of each queue of the app, and the lost messages; they stay where they are.

    Raises:
        BrokerUnavailable: the broker could not be reached.
    """
    broker = app.sessions.current().broker
    lines: list[FailureLine] = []
    bounded: set[str] = set()
    for name in await queues_with_letters(broker, [queue.name for queue in app.tasks.queues]):
        count = await visit(broker, name, partial(_add, lines, name), depth=depth + 1)
        if count > depth:
            bounded.add(name)
    return LettersLook(lines=lines, bounded=frozenset(bounded))


def _add(lines: list[FailureLine], name: str, letter: DeadLetter) -> None:
    # A job of the store ends there, whatever becomes of its message.
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


def _of_report(failure: RunFailure) -> FailureLine:
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


def _with_letters(lines: Iterable[FailureLine], look: LettersLook) -> list[FailureLine]:
    """The lines, those of jobs that were sent with what is known of their dead letters."""
    letters = {line.id: line.letter for line in look.lines}

    def seen(line: FailureLine) -> FailureLine:
        if line.lane != "broker":
            return line
        if (letter := letters.get(line.id)) is not None:
            return replace(line, letter=letter, remedy="replay", is_handled=False)
        return line if line.queue in look.bounded else replace(line, is_handled=True)

    return [seen(line) for line in lines]


async def _newest(read: _Read, which: FailureChoice, place: _Place | None, limit: int) -> list[FailureLine]:
    """The last `limit` lines behind a place, found in windows of time: of a day or two first, then of longer ones."""
    assert which.until is not None
    since, end = which.since or 0, which.until if place is None else min(which.until, place.at + 1)
    found: list[FailureLine] = []
    width = 2 * _DAY
    while end > since and len(found) < limit:
        begin = max(since, end - width)
        lines = await read(begin, end, _MOST if end - begin > 1 else None)
        if lines is None:
            width = max((end - begin) // _WIDER, 1)
            continue
        behind = [line for line in lines if place is None or line.place < place]
        found += sorted(behind, key=_by_place, reverse=True)
        end = begin
        width *= _WIDER
    return found[:limit]


def _by_place(line: FailureLine) -> _Place:
    return line.place


def _place(cursor: str) -> _Place:
    if (found := _CURSOR.fullmatch(cursor)) is None:
        raise InvalidOption(f"{cursor[:40]!r} is no place in the list of failures; say that of the page before")
    return _Place(int(found[1]), found[2])

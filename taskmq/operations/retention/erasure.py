"""Permanent deletion of jobs: those of a tenant or a person, and kinds that are kept for a shorter time."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.history import Remembering
from taskmq.contracts.identity import Actor
from taskmq.contracts.jobs import JobPage, JobStore
from taskmq.errors import InvalidOption, JobConflict, JobNotFound, UnsupportedFeature
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import TERMINAL, JobState
from taskmq.operations.retention.archive import Advance, require_retaining

_PAGE: Final = 200


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an erasure.

    Attributes:
        jobs: jobs that had ended or were cancelled, and are now forgotten.
        left: jobs that a worker has or may have. They were asked to stop; erase again once they ended.
    """

    jobs: int
    left: int


class _Lane(NamedTuple):
    """The jobs of the store, or the records of sent jobs."""

    page: Callable[..., Awaitable[JobPage]]
    forget_ended: Callable[[Sequence[str]], Awaitable[int]]


async def erase_jobs(
    app: TaskMQ,
    which: JobFilter,
    *,
    by: Actor,
    everything_of: str | None = None,
    on_progress: Advance | None = None,
) -> Erased:
    """Cancel all matching jobs, stored and recorded sent ones, and forget them for good.

    A filter with `via` selects one of the two. The audit log keeps only the fact and the numbers.

    Args:
        everything_of: a tenant whose definitions, logs and figures are forgotten as well.
        on_progress: called with the number of jobs forgotten; the total is unknown.

    Raises:
        UnsupportedFeature: the store cannot forget single jobs.
        StoreUnavailable: the store could not be reached; some jobs may be forgotten. Erase again.
        StateUnavailable: the state could not be reached, to cancel a sent job; some jobs may be forgotten. Erase
            again.
    """
    store = app.sessions.store()
    source = require_retaining(store)
    lanes = _lanes(app, which)
    for lane in lanes:
        await _cancel(app, lane, which, by=by)
    # Jobs that depend on the cancelled ones end with them.
    while (await store.dispatching.release_dependents()).is_more:
        pass
    jobs = 0
    for lane in lanes:
        async for ids in _match_pages(lane, which):
            jobs += await lane.forget_ended(ids)
            if on_progress is not None:
                on_progress(jobs, None)
    if everything_of is not None:
        await source.forget_tenant(everything_of)
    left = sum([len(ids) for lane in lanes async for ids in _match_pages(lane, which)])
    entry = by.entry(
        "job.erase", kind="tenant" if everything_of is not None else "job", subject=everything_of or "",
        tenant=which.tenant or "", after={"jobs": jobs, "left": left},
    )  # fmt: skip
    await store.identity.audit.add([entry])
    return Erased(jobs=jobs, left=left)


async def thin_out(
    store: JobStore,
    which: JobFilter,
    *,
    older_than: int | None = None,
    keep_last: int | None = None,
    on_progress: Advance | None = None,
) -> int:
    """Forget matching ended jobs before the store would. Returns their number.

    Args:
        older_than: minimum age since their end in ms.
        keep_last: number of jobs to keep, those submitted last.
        on_progress: see `erase_jobs`.

    Raises:
        InvalidOption: neither `older_than` nor `keep_last` is given, or the filter selects sent jobs.
        UnsupportedFeature, StoreUnavailable: see `erase_jobs`.
    """
    if older_than is None and keep_last is None:
        raise InvalidOption("say what to keep: an age or a number of jobs")
    which.check_stored()
    source = require_retaining(store)
    states = (which.states & TERMINAL) if which.states else TERMINAL
    before = None if older_than is None else await store.now_ms() - older_than
    found = replace(which, states=states)
    if before is not None and keep_last is None:
        # A job that ended before then was submitted before then; this skips the younger ones, which are most.
        found = replace(found, submitted_before=min(before, which.submitted_before or before))
    forgotten, seen, after = 0, 0, None
    while states:
        page = await store.list_jobs(found, after=after, limit=_PAGE)
        gone: list[str] = []
        for job in page.jobs:
            seen += 1
            is_beyond = keep_last is not None and seen > keep_last
            is_old = before is not None and job.finished is not None and job.finished < before
            if is_beyond or is_old:
                gone.append(job.id)
        forgotten += await source.forget_ended(gone, keeps_keys=True) if gone else 0
        if on_progress is not None:
            on_progress(forgotten, None)
        if (after := page.after) is None:
            break
    return forgotten


def _lanes(app: TaskMQ, which: JobFilter) -> list[_Lane]:
    store = app.sessions.store()
    lanes: list[_Lane] = []
    if which.via != "broker":
        lanes.append(_Lane(store.list_jobs, require_retaining(store).forget_ended))
    if which.via != "store" and isinstance(store, Remembering):
        sent = store.history.sent_jobs
        lanes.append(_Lane(sent.page, sent.forget_ended))
    return lanes


async def _cancel(app: TaskMQ, lane: _Lane, which: JobFilter, *, by: Actor) -> None:
    live = frozenset(JobState) - TERMINAL - {JobState.UNKNOWN}
    states = which.states & live if which.states else live
    if not states:
        return
    async for ids in _match_pages(lane, replace(which, states=states)):
        for job_id in ids:
            # A job may have ended meanwhile. Without a state, no sent job can be cancelled.
            with suppress(JobConflict, JobNotFound, UnsupportedFeature):
                await app.jobs.acancel(job_id, by=by.user, note="erased")


async def _match_pages(lane: _Lane, which: JobFilter) -> AsyncIterator[list[str]]:
    """Yield the ids of matching jobs page by page, so that memory stays bounded."""
    after: str | None = None
    while True:
        page = await lane.page(which, after=after, limit=_PAGE)
        yield [job.id for job in page.jobs]
        if (after := page.after) is None:
            return

"""Forgetting jobs for good: those of a tenant or a person, or of a kind that is kept for a shorter time."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.identity import Actor
from taskmq.contracts.jobs import JobStore
from taskmq.errors import InvalidOption, JobConflict, JobNotFound
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import TERMINAL, JobState
from taskmq.operations.retention.archive import Advance, retaining

__all__ = ["Erased", "erase_jobs", "thin_out"]

_PAGE: Final = 200


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a tenant was forgotten, and what is left.

    Attributes:
        jobs: that had ended, or were cancelled first, and are forgotten.
        left: that a worker has, or may have: they were asked to end, and are there still. Erase again then.
    """

    jobs: int
    left: int


async def erase_jobs(
    app: TaskMQ,
    which: JobFilter,
    *,
    by: Actor,
    everything_of: str | None = None,
    on_progress: Advance | None = None,
) -> Erased:
    """Cancel what the filter finds, and forget it for good; the audit keeps that it was done, and how many they were.

    Args:
        everything_of: a tenant, whose definitions, logs and figures are forgotten as well.
        on_progress: called with how many jobs are forgotten; of how many is not known.

    Raises:
        UnsupportedFeature: the store cannot do that.
        StoreUnavailable: it could not be reached; some may be forgotten. Erase again.
    """
    store = app.sessions.store()
    source = retaining(store)
    await _cancel(app, which, by=by)
    # What waited for those ends with them.
    while (await store.dispatching.release_dependents()).is_more:
        pass
    jobs = 0
    async for ids in _found(app, which):
        jobs += await source.forget_ended(ids)
        if on_progress is not None:
            on_progress(jobs, None)
    if everything_of is not None:
        await source.forget_tenant(everything_of)
    left = sum([len(ids) async for ids in _found(app, which)])
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
    """Forget ended jobs that the filter finds, before the store would; how many.

    Args:
        older_than: ms since their end.
        keep_last: but for so many, those that were submitted last.
        on_progress: see `erase_jobs`.

    Raises:
        InvalidOption: neither of them.
        UnsupportedFeature, StoreUnavailable: see `erase_jobs`.
    """
    if older_than is None and keep_last is None:
        raise InvalidOption("for how long, or how many of them, are they to be kept?")
    source = retaining(store)
    states = (which.states & TERMINAL) if which.states else TERMINAL
    before = None if older_than is None else await store.now_ms() - older_than
    found = replace(which, states=states)
    if before is not None and keep_last is None:
        # What ended before was submitted before: the young ones, which are most, are not read.
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
        forgotten += await source.forget_ended(gone) if gone else 0
        if on_progress is not None:
            on_progress(forgotten, None)
        if (after := page.after) is None:
            break
    return forgotten


async def _cancel(app: TaskMQ, which: JobFilter, *, by: Actor) -> None:
    live = frozenset(JobState) - TERMINAL - {JobState.UNKNOWN}
    states = which.states & live if which.states else live
    if not states:
        return
    async for ids in _found(app, replace(which, states=states)):
        for job_id in ids:
            with suppress(JobConflict, JobNotFound):
                # Where it has ended meanwhile that is as well.
                await app.jobs.acancel(job_id, by=by.user, note="erased")


async def _found(app: TaskMQ, which: JobFilter) -> AsyncIterator[list[str]]:
    """The ids of what the filter finds, a page at a time: however many they are, one page is here."""
    store = app.sessions.store()
    after: str | None = None
    while True:
        page = await store.list_jobs(which, after=after, limit=_PAGE)
        yield [job.id for job in page.jobs]
        if (after := page.after) is None:
            return

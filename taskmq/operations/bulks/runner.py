"""Carries out the bulks of a store, in small pieces: a `Service` of schedulers and servers.

The ids of a piece are written down before anything is done to its jobs, under a lease. A runner that finds the piece
of a dead one looks into the history of each of its jobs, which names the bulk where it was done already. What is
done compares the job's version, so that of two who are at the same piece, since one was taken for dead, one does it.
"""

import asyncio
import logging
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobRecord, JobStore
from taskmq.durable.service import pause
from taskmq.errors import JobConflict, StoreUnavailable, TaskMQError
from taskmq.model.jobs.bulks import MOST_REFUSALS, Bulk, BulkRefused, BulkRepeated, add_outcomes, wanted
from taskmq.model.jobs.filter_text import parse_filter
from taskmq.model.units import to_datetime
from taskmq.operations.bulks.tenant_bulks import bulk_entry
from taskmq.operations.tenant_jobs import TenantJobs

__all__ = ["BulkRunner"]

_log = logging.getLogger("taskmq.bulks")

_PIECE: Final = 20
_LEASE_MS: Final = 30_000
_LOOK: Final = 1.0
_IDLE_LOOK: Final = 5.0
_TRIES: Final = 5


class BulkRunner:
    """Carries out what is open, in turns with others: a `Service`.

    Args:
        me: a name of one's own, among all who carry out bulks.
        only: the id of the one bulk to carry out; all others are left to other runners.
    """

    def __init__(self, app: TaskMQ, *, me: str, only: str | None = None) -> None:
        self._app = app
        self._me = me
        self._only = only
        self._is_stopping = False
        # For the store: logged when that begins, and not again before it has ended.
        self._is_waiting = False
        self._awake = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping = True
        self._awake.set()

    def wake(self) -> None:
        """Look at once: there is something to do."""
        self._awake.set()

    async def run(self) -> None:
        """Look when there is something to do, and each five seconds where there is nothing, until `stop`.

        A piece that was begun is ended.
        """
        while not self._is_stopping:
            self._awake.clear()
            await pause(self._awake, await self._look())

    async def _look(self) -> float:
        """Seconds until the next look."""
        store = self._app.sessions.store()
        dues: list[int] = []
        try:
            found = await self._open(store)
            self._is_waiting = False
            for bulk in found:
                if self._is_stopping:
                    break
                now = await store.now_ms()
                if bulk.due > now:
                    dues.append(bulk.due)
                elif bulk.holder == self._me or bulk.lease_until <= now:
                    dues.append(await self._carried_on(bulk, now))
            if not found:
                return _IDLE_LOOK
            now = await store.now_ms()
        except StoreUnavailable as error:
            if not self._is_waiting:
                self._is_waiting = True
                _log.warning("bulk operations wait for the store: %s", error)
            return _LOOK
        return min([_LOOK, *(max(due - now, 0) / 1000 for due in dues)])

    async def _open(self, store: JobStore) -> list[Bulk]:
        if self._only is None:
            return await store.bulks.open()
        # By its id: the store lists so many of those that are open, and this one may not be among them.
        found = await store.bulks.get(self._only)
        return [] if found is None or found.ended is not None else [found]

    async def _carried_on(self, bulk: Bulk, now: int) -> int:
        """Do a piece of it, or end it where that cannot be; the instant (ms) from which on there is more to do."""
        try:
            return await self._carry_on(bulk, now)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one that cannot be carried out must not hold up the others
            _log.exception("bulk %s is given up", bulk.id)
            is_told = isinstance(error, TaskMQError)
            why = str(error) if is_told else "an error of the server; its log has more"
            refused = BulkRefused("", type(error).__name__, why)
            found = await self._app.sessions.store().bulks.get(bulk.id)
            if found is not None and found.ended is None:
                refusals = (*found.refusals[: MOST_REFUSALS - 1], refused)
                ended = replace(found, state="aborted", ended=now, pending=(), refusals=refusals)
                await self._app.sessions.store().bulks.write(ended, audit=bulk_entry(ended))
            return now

    async def _carry_on(self, bulk: Bulk, now: int) -> int:
        bulks = self._app.sessions.store().bulks
        jobs = TenantJobs(self._app, bulk.tenant, by=bulk.user, allows=bulk.allows)
        was_begun = bool(bulk.pending)
        size = _PIECE if bulk.rate is None else max(1, min(_PIECE, int(bulk.rate)))
        if not was_begun and not bulk.is_listed:
            which = wanted(parse_filter(bulk.filter, bulk.began), bulk.action, again=bulk.again)
            page = await jobs.list(which, after=bulk.after, limit=size)
            ids = tuple(record.id for record in page.jobs)
            bulk = replace(bulk, pending=ids, after=page.after, is_listed=page.after is None)
        elif not was_begun:
            bulk = replace(bulk, pending=bulk.deferred[:size], deferred=bulk.deferred[size:])
        claimed = await bulks.write(replace(bulk, holder=self._me, lease_until=now + _LEASE_MS))
        if claimed is None:
            # Another one was faster.
            return now + round(_LOOK * 1000)
        act = _Act(jobs, claimed)
        acts = [act(job_id, may_be_done=was_begun) for job_id in claimed.pending]
        outcomes = await asyncio.gather(*acts, return_exceptions=True)
        errors = [one for one in outcomes if isinstance(one, BaseException)]
        for error in errors:
            if isinstance(error, StoreUnavailable):
                raise error
        deferred = [one.job_id for one in outcomes if isinstance(one, _Deferred)]
        refusals = [one for one in outcomes if isinstance(one, BulkRefused)]
        repeated = [one for one in outcomes if isinstance(one, BulkRepeated)]
        wait = 0 if claimed.rate is None else round(len(outcomes) / claimed.rate * 1000)
        done = outcomes.count(None) + len(repeated)
        after = add_outcomes(
            claimed, done=done, refusals=refusals, due=now + wait, repeated=repeated, deferred=deferred
        )
        if not after.has_more and not errors:
            ended = replace(after, state="done", ended=await self._app.sessions.store().now_ms())
            written = await bulks.write(ended, audit=bulk_entry(ended))
        else:
            written = await bulks.write(after)
        found = None if written is not None else await bulks.get(claimed.id)
        # Aborted meanwhile; where it has changed more than once, another runner has counted these jobs.
        if found is not None and found.state == "aborted" and found.version == claimed.version + 1:
            told = add_outcomes(found, done=done, refusals=refusals, due=found.due, repeated=repeated)
            await bulks.write(told)
        for error in errors:
            raise error
        return after.due


class _Deferred(NamedTuple):
    """A job that waits for another one which is to be retried first, by the store's id."""

    job_id: str


class _Act:
    """Does to one job what a bulk is about."""

    def __init__(self, jobs: TenantJobs, bulk: Bulk) -> None:
        self._jobs = jobs
        self._bulk = bulk
        self._note = f"{bulk.note} ({bulk.mark})" if bulk.note else bulk.mark

    async def __call__(self, job_id: str, *, may_be_done: bool) -> "BulkRefused | BulkRepeated | _Deferred | None":
        """Why it stays as it is for now, or the job that repeats it; None where something else was done to it.

        Args:
            may_be_done: another runner was at it.
        """
        name = job_id
        try:
            record = await self._jobs.get(job_id)
            name = self._jobs.name_of(record)
            for _ in range(_TRIES):
                if may_be_done and await self._is_done(record):
                    return await self._repeated(name, record.retried_as)
                try:
                    after = await self._do(record)
                except JobConflict as error:
                    if error.waits_for and self._bulk.may_defer:
                        return _Deferred(job_id)
                    before, record = record, await self._jobs.get(job_id)
                    may_be_done = True
                    if record.version == before.version and not await self._is_done(record):
                        raise
                else:
                    return await self._repeated(name, "" if after.id == record.id else after.id)
            return BulkRefused(name, "JobConflict", f"job {name} changes all the time")
        except StoreUnavailable:
            raise
        except TaskMQError as error:
            return BulkRefused(name, type(error).__name__, str(error))

    async def _repeated(self, name: str, job_id: str) -> BulkRepeated | None:
        """The outcome of a job that was done to, with the one that repeats it, of this id."""
        return BulkRepeated(name, self._jobs.name_of(await self._jobs.get(job_id))) if job_id else None

    async def _do(self, record: JobRecord) -> JobRecord:
        bulk = self._bulk
        given: dict[str, Any] = {"version": record.version, "note": self._note}
        match bulk.action:
            case "change":
                at = None if bulk.at is None else to_datetime(bulk.at)
                return await self._jobs.change(record, at=at, priority=bulk.priority, **given)
            case "retry":
                return await self._jobs.retry(record, mode=bulk.mode, again=bulk.again, **given)
            case "cancel":
                return await self._jobs.cancel(record, **given)
            case "hold":
                return await self._jobs.hold(record, **given)
            case "release":
                return await self._jobs.release(record, **given)

    async def _is_done(self, record: JobRecord) -> bool:
        mark = self._bulk.mark
        return any(mark in event.note for event in await self._jobs.history(record.id))

"""Execution of a store's bulk operations in small batches: a `Service` of schedulers and servers.

A runner stores the ids of a batch under a lease before it acts on them. If it dies, the next runner reads the history
of each job in the batch; the history names the bulk if the job was already acted on. Each action compares the job's
version. If a runner was only thought dead and two work on the same batch, only one of them acts on each job.
"""

import asyncio
import logging
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobRecord, JobStore
from taskmq.durable.service import pause
from taskmq.errors import JobConflict, StoreUnavailable, TaskMQError
from taskmq.model.jobs.bulks import MOST_REFUSALS, Bulk, BulkRefused, BulkRepeated, add_outcomes, narrow_filter
from taskmq.model.jobs.filter_text import parse_filter
from taskmq.model.units import to_datetime
from taskmq.operations.bulks.tenant_bulks import build_end_entry
from taskmq.operations.tenant_jobs import TenantJobs

_log = logging.getLogger("taskmq.bulks")

_BATCH: Final = 20
_LEASE_MS: Final = 30_000
_POLL: Final = 1.0
_IDLE_POLL: Final = 5.0
_TRIES: Final = 5


class BulkRunner:
    """A service that executes open bulks, taking turns with other runners.

    Args:
        me: a name unique among all runners.
        only: the id of the one bulk to execute; other runners execute the rest.
    """

    def __init__(self, app: TaskMQ, *, me: str, only: str | None = None) -> None:
        self._app = app
        self._me = me
        self._only = only
        self._is_stopping = False
        # Whether the store is unavailable; logged once per outage.
        self._is_waiting = False
        self._awake = asyncio.Event()

    def stop(self) -> None:
        """Finish the current batch, then return from `run`."""
        self._is_stopping = True
        self._awake.set()

    def wake(self) -> None:
        """Poll the store at once, without waiting for the next period."""
        self._awake.set()

    async def run(self) -> None:
        """Execute open bulks until `stop`. Polls every five seconds while none is open.

        A batch that was begun is finished.
        """
        while not self._is_stopping:
            self._awake.clear()
            await pause(self._awake, await self._poll())

    async def _poll(self) -> float:
        """Execute a batch of each open bulk that is due. Returns the seconds until the next poll."""
        store = self._app.sessions.store()
        dues: list[int] = []
        try:
            found = await self._list_open(store)
            self._is_waiting = False
            for bulk in found:
                if self._is_stopping:
                    break
                now = await store.now_ms()
                if bulk.due > now:
                    dues.append(bulk.due)
                elif bulk.holder == self._me or bulk.lease_until <= now:
                    dues.append(await self._execute_or_abort(bulk, now))
            if not found:
                return _IDLE_POLL
            now = await store.now_ms()
        except StoreUnavailable as error:
            if not self._is_waiting:
                self._is_waiting = True
                _log.warning("store unavailable, bulk operations wait: %s", error)
            return _POLL
        return min([_POLL, *(max(due - now, 0) / 1000 for due in dues)])

    async def _list_open(self, store: JobStore) -> list[Bulk]:
        if self._only is None:
            return await store.bulks.open()
        # By its id, because the store lists only some of the open bulks.
        found = await store.bulks.get(self._only)
        return [] if found is None or found.ended is not None else [found]

    async def _execute_or_abort(self, bulk: Bulk, now: int) -> int:
        """Execute a batch, or abort the bulk if that fails. Returns when the next batch is due (ms)."""
        try:
            return await self._execute_batch(bulk, now)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - a broken bulk must not hold up the others
            _log.exception("bulk %s failed, aborting it", bulk.id)
            is_public = isinstance(error, TaskMQError)
            why = str(error) if is_public else "internal error; see the log of the process that ran it"
            refused = BulkRefused("", type(error).__name__, why)
            found = await self._app.sessions.store().bulks.get(bulk.id)
            if found is not None and found.ended is None:
                refusals = (*found.refusals[: MOST_REFUSALS - 1], refused)
                ended = replace(found, state="aborted", ended=now, pending=(), refusals=refusals)
                await self._app.sessions.store().bulks.write(ended, audit=build_end_entry(ended))
            return now

    async def _execute_batch(self, bulk: Bulk, now: int) -> int:
        bulks = self._app.sessions.store().bulks
        jobs = TenantJobs(self._app, bulk.tenant, by=bulk.user, allows=bulk.allows)
        was_begun = bool(bulk.pending)
        size = _BATCH if bulk.rate is None else max(1, min(_BATCH, int(bulk.rate)))
        if not was_begun and not bulk.is_listed:
            which = narrow_filter(parse_filter(bulk.filter, bulk.began), bulk.action, again=bulk.again)
            page = await jobs.list(which, after=bulk.after, limit=size)
            ids = tuple(record.id for record in page.jobs)
            bulk = replace(bulk, pending=ids, after=page.after, is_listed=page.after is None)
        elif not was_begun:
            bulk = replace(bulk, pending=bulk.deferred[:size], deferred=bulk.deferred[size:])
        claimed = await bulks.write(replace(bulk, holder=self._me, lease_until=now + _LEASE_MS))
        if claimed is None:
            # Another runner claimed it first.
            return now + round(_POLL * 1000)
        act = _JobAction(jobs, claimed)
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
            claimed,
            done=done,
            reattached=act.reattached,
            refusals=refusals,
            due=now + wait,
            repeated=repeated,
            deferred=deferred,
        )
        if not after.has_more and not errors:
            ended = replace(after, state="done", ended=await self._app.sessions.store().now_ms())
            written = await bulks.write(ended, audit=build_end_entry(ended))
        else:
            written = await bulks.write(after)
        found = None if written is not None else await bulks.get(claimed.id)
        # The bulk was aborted meanwhile. If it changed more than once, another runner has counted these jobs.
        if found is not None and found.state == "aborted" and found.version == claimed.version + 1:
            counted = add_outcomes(
                found, done=done, reattached=act.reattached, refusals=refusals, due=found.due, repeated=repeated
            )
            await bulks.write(counted)
        for error in errors:
            raise error
        return after.due


class _Deferred(NamedTuple):
    """A job that waits for another one to be retried first, by the store's id."""

    job_id: str


class _JobAction:
    """The action of a bulk on one job.

    Attributes:
        reattached: number of ended dependents that wait for jobs that it retried.
    """

    def __init__(self, jobs: TenantJobs, bulk: Bulk) -> None:
        self.reattached = 0
        self._jobs = jobs
        self._bulk = bulk
        self._note = f"{bulk.note} ({bulk.mark})" if bulk.note else bulk.mark

    async def __call__(self, job_id: str, *, may_be_done: bool) -> "BulkRefused | BulkRepeated | _Deferred | None":
        """Act on one job. Returns why it was refused or deferred, or the job that repeats it; None otherwise.

        Args:
            may_be_done: whether another runner may have acted on it.
        """
        name = job_id
        try:
            record = await self._jobs.get(job_id)
            name = self._jobs.name_of(record)
            for _ in range(_TRIES):
                if may_be_done and await self._is_done(record):
                    return await self._build_outcome(name, record.retried_as)
                try:
                    after = await self._act(record)
                except JobConflict as error:
                    if error.waits_for and self._bulk.may_defer:
                        return _Deferred(job_id)
                    before, record = record, await self._jobs.get(job_id)
                    may_be_done = True
                    if record.version == before.version and not await self._is_done(record):
                        raise
                else:
                    self.reattached += after.reattached
                    return await self._build_outcome(name, "" if after.id == record.id else after.id)
            return BulkRefused(name, "JobConflict", f"job {name} changed during each of {_TRIES} tries")
        except StoreUnavailable:
            raise
        except TaskMQError as error:
            return BulkRefused(name, type(error).__name__, str(error))

    async def _build_outcome(self, name: str, job_id: str) -> BulkRepeated | None:
        """Return the outcome that names the job that repeats this one; None if no job does."""
        return BulkRepeated(name, self._jobs.name_of(await self._jobs.get(job_id))) if job_id else None

    async def _act(self, record: JobRecord) -> JobRecord:
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

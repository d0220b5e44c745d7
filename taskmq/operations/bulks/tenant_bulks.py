"""Stored bulk operations that one caller may see: those of one tenant or of all tenants."""

import hashlib
import os
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.identity import Actor
from taskmq.errors import InvalidOption, JobConflict
from taskmq.model.envelope import new_job_id
from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.bulks import Bulk, BulkAction, narrow_filter
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.units import LAST_INSTANT, Duration, instant_ms, parse_duration, to_ms
from taskmq.operations.bulks.pages import BulkChange, check_change
from taskmq.operations.tenant_jobs import TenantJobs

_CAP: Final = 100_000
_LEAST_RATE: Final = 0.01
_MOST_RATE: Final = 1e6


class BulkOrder(NamedTuple):
    """An action, and the jobs it applies to.

    Attributes:
        filter: same syntax as in the list of jobs.
        at, delay, priority: new values for `change`; a delay counts from now.
        mode, again: options of `retry`, see `Bulk`.
        rate: most jobs per second.
        tasks: see `Bulk`.
    """

    action: BulkAction
    filter: str
    at: datetime | None = None
    delay: Duration | None = None
    priority: int | None = None
    mode: RetryMode | None = None
    again: bool = False
    rate: float | None = None
    note: str = ""
    tasks: tuple[tuple[str, ...], ...] = ()


class StoredBulks(NamedTuple):
    """A page of bulks, newest first; `after` is the cursor of the next page, None at the end."""

    bulks: list[Bulk]
    after: str | None


class TenantBulks:
    """The bulks that a caller may see.

    Every method raises `StoreUnavailable`, and `UnsupportedFeature` if the app has no store.

    Args:
        tenant: tenant that owns the jobs; "" means jobs without a tenant, None means all jobs.
        by: the actor, for the audit log and the job histories.
    """

    def __init__(self, app: TaskMQ, tenant: str | None, *, by: Actor) -> None:
        self._app = app
        self._tenant = tenant
        self._by = by

    async def begin(self, order: BulkOrder, *, key: str = "") -> Bulk:
        """Store the bulk, so that schedulers and servers execute it even if this process ends.

        Args:
            key: idempotency key within the tenant. While the bulk is kept, the same order returns that bulk.

        Raises:
            InvalidFilter: the filter is malformed.
            JobConflict: the key belongs to a different order.
            InvalidOption: the rate is out of range, or see `check_change`.
        """
        check_change(order.action, BulkChange(order.at, order.delay, order.priority, order.mode, order.again))
        if order.rate is not None and not _LEAST_RATE <= order.rate <= _MOST_RATE:
            raise InvalidOption(f"rate={order.rate}: give {_LEAST_RATE} to {_MOST_RATE:,.0f} jobs per second")
        store = self._app.sessions.store()
        jobs = TenantJobs(self._app, self._tenant, by=self._by)
        which = narrow_filter(await jobs.filter(order.filter), order.action, again=order.again)
        matched = min(await jobs.count(which, cap=_CAP), _CAP)
        now = await store.now_ms()
        at = None if order.at is None else instant_ms(order.at, what="at")
        if order.delay is not None:
            at = min(now + to_ms(parse_duration(order.delay, what="delay")), LAST_INSTANT)
        bulk = Bulk(
            id=new_job_id(now, os.urandom(10)),
            tenant=self._tenant,
            action=order.action,
            filter=order.filter,
            at=at,
            priority=order.priority,
            mode=order.mode,
            again=order.again,
            note=order.note,
            rate=order.rate,
            matched=matched,
            user_id=self._by.user_id,
            user=self._by.user,
            via=self._by.via,
            tasks=order.tasks,
            began=now,
            due=now,
            key=key,
            fingerprint=_compute_fingerprint(order),
        )
        facts: dict[str, object] = {"action": bulk.action, "filter": bulk.filter, "matched": matched}
        kept = await store.bulks.add(bulk, audit=self._entry("bulk.begin", bulk, facts))
        if kept.fingerprint != bulk.fingerprint:
            raise JobConflict(
                f"key {key!r} already belongs to bulk operation {kept.id}, which differs: use another key"
            )
        return kept

    async def get(self, bulk_id: str) -> Bulk | None:
        """Return the bulk; None if there is none or it belongs to another tenant."""
        found = await self._app.sessions.store().bulks.get(bulk_id)
        return found if found is not None and self._tenant in (None, found.tenant) else None

    async def page(self, *, after: str | None = None, limit: int = 50) -> StoredBulks:
        """Return up to `limit` bulks, newest first."""
        found = await self._app.sessions.store().bulks.page(self._tenant, after=after, limit=limit + 1)
        return StoredBulks(found[:limit], found[limit - 1].id if len(found) > limit else None)

    async def abort(self, bulk_id: str) -> Bulk | None:
        """Abort a bulk and return it. A bulk that has ended is returned unchanged; None if there is none.

        A runner may still finish its current batch of up to 20 jobs. They are counted as soon as it has.
        """
        store = self._app.sessions.store()
        while (bulk := await self.get(bulk_id)) is not None and bulk.ended is None:
            ended = replace(bulk, state="aborted", ended=await store.now_ms(), pending=())
            entry = self._entry("bulk.abort", bulk, {"done": bulk.done, "refused": bulk.refused})
            if (written := await store.bulks.write(ended, audit=entry)) is not None:
                return written
        return bulk

    def _entry(self, action: str, bulk: Bulk, facts: dict[str, object]) -> AuditEntry:
        by = replace(self._by, note=bulk.note or self._by.note)
        return by.entry(action, kind="bulk", subject=bulk.id, tenant=bulk.tenant or "", after=facts)


def _compute_fingerprint(order: BulkOrder) -> str:
    at = None if order.at is None else instant_ms(order.at, what="at")
    delay = None if order.delay is None else to_ms(parse_duration(order.delay, what="delay"))
    facts = (order.action, order.filter, at, delay, order.priority, order.rate, order.note, order.mode, order.again)
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


def build_end_entry(bulk: Bulk) -> AuditEntry:
    """Build the audit entry for the end of a bulk, in the name of the user who began it."""
    by = Actor(user_id=bulk.user_id, user=bulk.user, via=bulk.via, note=bulk.note)
    facts: dict[str, object] = {"done": bulk.done, "refused": bulk.refused}
    if bulk.reattached:
        facts["reattached"] = bulk.reattached
    action = "bulk.end" if bulk.state == "done" else "bulk.abort"
    return by.entry(action, kind="bulk", subject=bulk.id, tenant=bulk.tenant or "", after=facts)

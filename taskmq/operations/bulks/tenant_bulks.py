"""Bulks that the store keeps, as one caller may see them: those of a tenant, or everybody's."""

import hashlib
import os
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.identity import Actor
from taskmq.errors import InvalidOption, JobConflict
from taskmq.model.envelope import LAST_INSTANT, new_job_id
from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.bulks import Bulk, BulkAction, wanted
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.units import Duration, parse_duration, to_ms
from taskmq.operations.bulks.pages import BulkChange, check_change
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.stored_jobs.stored import instant_ms

__all__ = ["BulkOrder", "StoredBulks", "TenantBulks", "bulk_entry"]

_CAP: Final = 100_000
_LEAST_RATE: Final = 0.01
_MOST_RATE: Final = 1e6


class BulkOrder(NamedTuple):
    """What is to be done to which jobs.

    Attributes:
        filter: as in the list of jobs.
        at, delay, priority: what a change makes different; a delay counts from now.
        mode, again: of a retry, see `Bulk`.
        rate: to so many jobs a second.
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
    """Some bulks, the last one first; `after` is where the next page begins, None at the end."""

    bulks: list[Bulk]
    after: str | None


class TenantBulks:
    """The bulks that a caller may see; raises `StoreUnavailable`, and `UnsupportedFeature` without a store.

    Args:
        tenant: whose jobs are meant: "" those that have no tenant, None everybody's.
        by: who acts, for the audit and the histories.
    """

    def __init__(self, app: TaskMQ, tenant: str | None, *, by: Actor) -> None:
        self._app = app
        self._tenant = tenant
        self._by = by

    async def begin(self, order: BulkOrder, *, key: str = "") -> Bulk:
        """Keep it, so that schedulers and servers carry it out, whatever becomes of this process.

        Args:
            key: the tenant's own; the same order under the same key is the same bulk, for as long as that is kept.

        Raises:
            InvalidFilter: the filter cannot be read.
            JobConflict: another order was given under the key.
            InvalidOption: see `check_change`; or a rate that is none.
        """
        check_change(order.action, BulkChange(order.at, order.delay, order.priority, order.mode, order.again))
        if order.rate is not None and not _LEAST_RATE <= order.rate <= _MOST_RATE:
            raise InvalidOption(f"rate={order.rate}: {_LEAST_RATE} to {_MOST_RATE:,.0f} jobs a second")
        store = self._app.sessions.store()
        jobs = TenantJobs(self._app, self._tenant, by=self._by)
        which = wanted(await jobs.filter(order.filter), order.action, again=order.again)
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
            fingerprint=_fingerprint(order),
        )
        facts: dict[str, object] = {"action": bulk.action, "filter": bulk.filter, "matched": matched}
        kept = await store.bulks.add(bulk, audit=self._entry("bulk.begin", bulk, facts))
        if kept.fingerprint != bulk.fingerprint:
            raise JobConflict(
                f"under the key {key!r} the bulk operation {kept.id} was begun, which is another: take another key"
            )
        return kept

    async def get(self, bulk_id: str) -> Bulk | None:
        """The bulk; None where there is none, or it is another tenant's."""
        found = await self._app.sessions.store().bulks.get(bulk_id)
        return found if found is not None and self._tenant in (None, found.tenant) else None

    async def page(self, *, after: str | None = None, limit: int = 50) -> StoredBulks:
        """Up to `limit` of them, the last one first."""
        found = await self._app.sessions.store().bulks.page(self._tenant, after=after, limit=limit + 1)
        return StoredBulks(found[:limit], found[limit - 1].id if len(found) > limit else None)

    async def abort(self, bulk_id: str) -> Bulk | None:
        """Have no more jobs be done to; the bulk then. One that has ended stays as it is.

        It may still reach the up to 20 jobs that a runner is at, which are counted as soon as it has. None: there is
        none.
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


def _fingerprint(order: BulkOrder) -> str:
    at = None if order.at is None else instant_ms(order.at, what="at")
    delay = None if order.delay is None else to_ms(parse_duration(order.delay, what="delay"))
    said = (order.action, order.filter, at, delay, order.priority, order.rate, order.note, order.mode, order.again)
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()


def bulk_entry(bulk: Bulk) -> AuditEntry:
    """What the audit says of the end of a bulk, in the name of who has begun it."""
    by = Actor(user_id=bulk.user_id, user=bulk.user, via=bulk.via, note=bulk.note)
    facts: dict[str, object] = {"done": bulk.done, "refused": bulk.refused}
    action = "bulk.end" if bulk.state == "done" else "bulk.abort"
    return by.entry(action, kind="bulk", subject=bulk.id, tenant=bulk.tenant or "", after=facts)

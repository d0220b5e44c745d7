"""Maintenance that one scheduler does for all.

Once an hour the store prepares tables for the coming days, and drops old jobs, after archiving them if configured.
Each second new entries of the audit log are sealed into its chain. Each task has a lease that lasts for one turn and
is not renewed; the scheduler that acquires it does the work.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from taskmq.contracts.jobs import JobStore, Prunable
from taskmq.contracts.stores import Lease
from taskmq.durable.lease_terms import acquire_in_term
from taskmq.durable.service import pause
from taskmq.errors import InvalidOption, MalformedMessage, StateUnavailable, StoreUnavailable, UnsupportedFeature
from taskmq.model.units import DAY_MS
from taskmq.operations.retention import KeepRule, archive_days, require_retaining, thin_out
from taskmq.scheduler.history import forget_old

_log = logging.getLogger("taskmq.scheduler")

_DUTIES: Final = "duties"
_HOUR: Final = 3600.0
_PERIOD: Final = 60.0
_AUDIT: Final = "audit"
_TURN: Final = 30.0
_SECOND: Final = 1.0
_BATCH: Final = 500
# A day is complete once transactions that were open at its end have committed.
_OVER_FOR: Final = 1
_ARCHIVED_AFTER: Final = 3


class Duties:
    """A service that does the hourly maintenance, unless another scheduler has.

    Args:
        archive: folder into which each past day is written before it is forgotten; None: no archive.
        keep: rules for how long ended jobs are kept; without a rule for all jobs, the store's default applies.

    Raises:
        UnsupportedFeature: the store cannot forget the jobs that the rules name.
        InvalidOption: jobs would be forgotten before they are archived.
    """

    def __init__(
        self, store: JobStore, *, me: str, archive: Path | None = None, keep: Sequence[KeepRule] = ()
    ) -> None:
        ages = [rule.older_than for rule in keep if not rule.where and rule.older_than is not None]
        self._days = min(ages) // DAY_MS if ages else None
        self._rules = [rule for rule in keep if rule.where]
        if self._rules:
            require_retaining(store)
        if self._days is not None:
            _require_prunable(store)
            if archive is not None and self._days < _ARCHIVED_AFTER:
                raise InvalidOption(
                    f"--keep {self._days}d with --archive: a day is archived {_ARCHIVED_AFTER} days later; keep jobs "
                    "at least that long"
                )
        self._store = store
        self._me = me
        self._archive = archive
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Check once a minute whether maintenance is due, until `stop`."""
        while not self._is_stopping.is_set():
            await pause(self._is_stopping, await self._work())

    async def _work(self) -> float:
        """Do what is due. Returns the seconds until the next call."""
        leases = self._store.dispatching.leases
        try:
            token = await acquire_in_term(leases, _DUTIES, owner=self._me, seconds=_HOUR)
            if isinstance(token, Lease):
                return min(max(token.left, 1.0), _PERIOD)
            try:
                is_archived = await self._archive_days()
                await self._store.dispatching.maintain(forgets=is_archived and self._days is None)
                await self._store.identity.credentials.sweep()
                await forget_old(self._store)
                if is_archived:
                    await self._forget()
            except StoreUnavailable:
                # Let another scheduler try; releasing the lease may fail as well.
                await leases.release(_DUTIES, token=token)
                raise
        except (StateUnavailable, StoreUnavailable) as error:
            _log.warning("maintenance of the store failed, will retry: %s", error)
        return _PERIOD

    async def _forget(self) -> None:
        """Forget the jobs that the rules do not keep."""
        if self._days is not None:
            await _require_prunable(self._store).prune(keep_days=self._days)
        for rule in self._rules:
            gone = await thin_out(
                self._store,
                rule.which(await self._store.now_ms()),
                older_than=rule.older_than,
                keep_last=rule.keep_last,
            )
            if gone:
                _log.info("forgot %d ended jobs by a rule of --keep", gone)

    async def _archive_days(self) -> bool:
        """Archive past days. Returns whether ended jobs may be forgotten."""
        if self._archive is None:
            return True
        try:
            days = await archive_days(self._store, self._archive, keep_days=_OVER_FOR, only_new=True)
        except (OSError, MalformedMessage) as error:
            _log.error(
                "archiving ended jobs failed; they stay in the store, next try in an hour: %s",
                error,
            )
            return False
        for day in days:
            _log.info("archived %d jobs that ended on %s in %s", day.jobs, day.day, day.file)
        return True


def _require_prunable(store: JobStore) -> Prunable:
    if not isinstance(store, Prunable):
        raise UnsupportedFeature(f"{store.address} cannot prune ended jobs: its retention is fixed")
    return store


class AuditSeal:
    """A service that seals new audit entries each second, taking turns of half a minute with other schedulers.

    The lease only saves queries; two schedulers at a time would do no harm.
    """

    def __init__(self, store: JobStore, *, me: str) -> None:
        self._store = store
        self._me = me
        self._is_stopping = asyncio.Event()
        self._turns_left = 0

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Seal entries in turns with other schedulers, until `stop`."""
        while not self._is_stopping.is_set():
            await pause(self._is_stopping, await self._work())

    async def _work(self) -> float:
        """Do what is due. Returns the seconds until the next call."""
        try:
            if not self._turns_left:
                leases = self._store.dispatching.leases
                token = await acquire_in_term(leases, _AUDIT, owner=self._me, seconds=_TURN)
                if isinstance(token, Lease):
                    return max(token.left, _SECOND)
                self._turns_left = round(_TURN / _SECOND)
            self._turns_left -= 1
            if await self._store.identity.audit.seal(limit=_BATCH) == _BATCH:
                return 0.0
        except (StateUnavailable, StoreUnavailable) as error:
            self._turns_left = 0
            _log.warning("sealing the audit log failed, will retry: %s", error)
        return _SECOND

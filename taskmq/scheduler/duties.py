"""What one scheduler does for all.

Once an hour the store makes room for the days to come, and drops what is old, once it is in an archive where there is
to be one; each second new entries of the audit are sealed into its chain. The lease of either lasts for its turn and
is not renewed: the scheduler that takes it has the turn.
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
from taskmq.operations.retention import KeepRule, archive_days, require_retaining, thin_out
from taskmq.scheduler.history import forget_old

__all__ = ["AuditSeal", "Duties"]

_log = logging.getLogger("taskmq.scheduler")

_DUTIES: Final = "duties"
_HOUR: Final = 3600.0
_LOOK: Final = 60.0
_AUDIT: Final = "audit"
_TURN: Final = 30.0
_SECOND: Final = 1.0
_BATCH: Final = 500
# A day gets no more jobs when the commits that were on their way at its end have come.
_OVER_FOR: Final = 1
_ARCHIVED_AFTER: Final = 3
_DAY: Final = 86_400_000


class Duties:
    """Does this hour's duties, if no other scheduler has: a `Service`.

    Args:
        archive: the folder into which each day goes once it is over, before it is forgotten; None: none.
        keep: for how long ended jobs are kept; the store's own time where no rule is about all of them.

    Raises:
        UnsupportedFeature: there are rules, and the store cannot forget what they say.
        InvalidOption: all jobs are to be forgotten before their day is in the archive.
    """

    def __init__(
        self, store: JobStore, *, me: str, archive: Path | None = None, keep: Sequence[KeepRule] = ()
    ) -> None:
        ages = [rule.older_than for rule in keep if not rule.where and rule.older_than is not None]
        self._days = min(ages) // _DAY if ages else None
        self._rules = [rule for rule in keep if rule.where]
        if self._rules:
            require_retaining(store)
        if self._days is not None:
            _prunable(store)
            if archive is not None and self._days < _ARCHIVED_AFTER:
                raise InvalidOption(
                    f"--keep {self._days}d with --archive: a day is in its file {_ARCHIVED_AFTER} days later; keep "
                    "jobs for that long at least"
                )
        self._store = store
        self._me = me
        self._archive = archive
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Look once a minute whether the next turn is due, until `stop`."""
        while not self._is_stopping.is_set():
            await pause(self._is_stopping, await self._look())

    async def _look(self) -> float:
        """Seconds until the next look."""
        leases = self._store.dispatching.leases
        try:
            token = await acquire_in_term(leases, _DUTIES, owner=self._me, seconds=_HOUR)
            if isinstance(token, Lease):
                return min(max(token.left, 1.0), _LOOK)
            try:
                is_archived = await self._archived()
                await self._store.dispatching.maintain(forgets=is_archived and self._days is None)
                await self._store.identity.credentials.sweep()
                await forget_old(self._store)
                if is_archived:
                    await self._forget()
            except StoreUnavailable:
                # Another scheduler may have more luck; the lease may not be given back either.
                await leases.release(_DUTIES, token=token)
                raise
        except (StateUnavailable, StoreUnavailable) as error:
            _log.warning("the store's upkeep waits: %s", error)
        return _LOOK

    async def _forget(self) -> None:
        """Forget what the rules do not keep."""
        if self._days is not None:
            await _prunable(self._store).prune(keep_days=self._days)
        for rule in self._rules:
            gone = await thin_out(
                self._store,
                rule.which(await self._store.now_ms()),
                older_than=rule.older_than,
                keep_last=rule.keep_last,
            )
            if gone:
                _log.info("forgot %d ended jobs that a rule of --keep does not keep", gone)

    async def _archived(self) -> bool:
        """Whether ended jobs may be forgotten: they are in files, or are not to be."""
        if self._archive is None:
            return True
        try:
            days = await archive_days(self._store, self._archive, keep_days=_OVER_FOR, only_new=True)
        except (OSError, MalformedMessage) as error:
            _log.error(
                "jobs that have ended are not archived, and stay in the store until they are; looked at again in an "
                "hour: %s",
                error,
            )
            return False
        for day in days:
            _log.info("%d jobs that ended on %s are in %s", day.jobs, day.day, day.file)
        return True


def _prunable(store: JobStore) -> Prunable:
    if not isinstance(store, Prunable):
        raise UnsupportedFeature(f"{store.address} keeps ended jobs for a time of its own only")
    return store


class AuditSeal:
    """Seals new entries of the audit each second, in turns of half a minute: a `Service`.

    The lease only spares the database the questions of the other schedulers; two at a time would do no harm.
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
        """Seal in turns with others, until `stop`."""
        while not self._is_stopping.is_set():
            await pause(self._is_stopping, await self._look())

    async def _look(self) -> float:
        """Seconds until the next look."""
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
            _log.warning("the audit is not sealed: %s", error)
        return _SECOND

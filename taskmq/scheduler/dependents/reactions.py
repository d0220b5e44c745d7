"""Reactions to ends of runs, and of stored jobs that no worker sees.

    cancelled, expired, ended by another job's end, or given up by a scheduler
        -> an event in the job's history -> found here within a second -> delivered like an end that a worker sees
    a run ends -------------------------> found here within a second -> delivered

One scheduler at a time looks, under a lease. It begins an hour back, so ends count while no scheduler runs for less
than that. Delivering an end again has no effect, except for calls over the broker lane without a state: these count
from the present on.
"""

import asyncio
import logging
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobAction, JobStore
from taskmq.contracts.stores import Lease
from taskmq.durable.lease_terms import acquire_in_term
from taskmq.durable.lookback import Lookback
from taskmq.durable.service import pause
from taskmq.errors import SendError, StateUnavailable, StoreUnavailable
from taskmq.model.states import TERMINAL
from taskmq.reactions import Reaction
from taskmq.scheduler.dependents.reaction_table import Awaiting, ReactionTable

_log = logging.getLogger("taskmq.scheduler")

_PERIOD: Final = 1.0
_PERIOD_DOWN: Final = 5.0
_LEASE: Final = 30.0
_HOUR: Final = 3_600_000
# Events of jobs in a look; as many need 100 MB.
_MOST: Final = 100_000
_PAGE: Final = 500
_KINDS: Final = frozenset({"cancel", "ended", "undispatched"})


class EndReactions:
    """A service that delivers such ends to the reactions of the app, in turns with other schedulers.

    Args:
        table: the stored reactions.
    """

    def __init__(self, app: TaskMQ, store: JobStore, table: ReactionTable, *, me: str) -> None:
        self._app = app
        self._store = store
        self._leases = store.dispatching.leases
        self._me = me
        self._key = f"reactions:{app.name}"
        self._table = table
        self._lookback = Lookback(past=_HOUR)
        self._lookback_of_runs = Lookback(past=_HOUR)
        self._began: int | None = None
        self._token = 0
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Look while no other scheduler does, until `stop`."""
        while not self._is_stopping.is_set():
            wait = _PERIOD
            if not self._are_any:
                await pause(self._is_stopping, wait)
                continue
            try:
                token = await acquire_in_term(self._leases, self._key, owner=self._me, seconds=_LEASE)
                if isinstance(token, Lease):
                    wait = max(token.left, _PERIOD)
                else:
                    self._token = token
                    await self._look_while_leading()
            except (SendError, StateUnavailable, StoreUnavailable) as error:
                wait = _PERIOD_DOWN
                _log.warning("delivering ends of jobs to reactions failed, will retry: %s", error)
            await pause(self._is_stopping, wait)

    @property
    def _are_any(self) -> bool:
        return bool(self._app.reactions.awaited_tasks or self._table.to_runs) or not self._table.is_empty

    async def _look_while_leading(self) -> None:
        self._lookback, self._lookback_of_runs = Lookback(past=_HOUR), Lookback(past=_HOUR)
        self._began = None
        try:
            while not self._is_stopping.is_set() and self._are_any:
                await self.look()
                await pause(self._is_stopping, _PERIOD)
                if not await self._leases.renew(self._key, token=self._token, seconds=_LEASE):
                    return
        finally:
            await self._leases.release(self._key, token=self._token)

    async def look(self) -> int:
        """Deliver the ends since the last look; return how many there were.

        Raises:
            SendError, StateUnavailable, StoreUnavailable: the next look delivers those that are left.
        """
        now = await self._store.now_ms()
        if self._began is None:
            self._began = now
        return await self._look_at_jobs(now, self._began) + await self._look_at_runs(now, self._began)

    async def _look_at_jobs(self, now: int, began: int) -> int:
        found = 0
        for number, action in enumerate(await self._read_actions(self._lookback.since(now)), 1):
            if not number % _PAGE:
                # Reacting to many ends takes longer than the lease.
                await self._leases.renew(self._key, token=self._token, seconds=_LEASE)
            entry = action.entry
            if entry.kind in _KINDS and entry.state in TERMINAL:
                key = (action.job_id, str(entry.version))
                if not self._lookback.has_seen(key):
                    found += await self._deliver(action, began)
                    self._lookback.is_new(key, entry.at)
        self._lookback.end(now)
        return found

    async def _read_actions(self, since: int) -> list[JobAction]:
        actions = await self._store.actions(since, limit=_MOST)
        if len(actions) == _MOST:
            _log.error("more than %d events of jobs since the last look, leaving out the earlier ones", _MOST)
        return actions

    async def _look_at_runs(self, now: int, began: int) -> int:
        found, since, after = 0, self._lookback_of_runs.since(now), ""
        while reactions := self._table.to_runs:
            page = await self._store.runs.ended_since(since, after=after, limit=_PAGE)
            for run in page:
                key = (run.id, str(run.generation))
                at = since = run.ended or 0
                after = run.id
                if not self._lookback_of_runs.has_seen(key):
                    waiting = [each for each in reactions if self._counts(each.reaction, at, began)]
                    found += await self._table.deliver_run(waiting, run) > 0
                    self._lookback_of_runs.is_new(key, at)
            if len(page) < _PAGE:
                break
        self._lookback_of_runs.end(now)
        return found

    def _counts(self, reaction: Reaction, at: int, began: int) -> bool:
        """Whether an end at this instant counts for a reaction."""
        if reaction.is_dynamic:
            return at >= reaction.since
        return at >= began or self._is_repeatable(reaction)

    async def _deliver(self, action: JobAction, began: int) -> bool:
        """Deliver an end to the reactions that wait for it; return whether there are any."""
        entry = action.entry
        assert entry.state is not None
        of_code = map(Awaiting._make, self._app.reactions.waiting_for(action.task))
        waiting = [
            each
            for each in (*self._table.stored_for(action.task), *of_code)
            if self._counts(each.reaction, entry.at, began)
        ]
        if not waiting or (job := await self._store.get(action.job_id)) is None:
            return False
        return await self._table.deliver_end(waiting, job, entry.state) > 0

    def _is_repeatable(self, reaction: Reaction) -> bool:
        """Whether the same event again has no effect: the call is recorded, or another one has its id."""
        has_state = self._app.sessions.state_url is not None
        return has_state or not reaction.is_direct or reaction.is_submitted

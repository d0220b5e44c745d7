"""Reactions to ends of stored jobs that no worker sees.

    cancelled, expired, ended by another job's end, or given up by a scheduler
        -> an event in the job's history -> found here within a second -> delivered like an end that a worker sees

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
from taskmq.errors import MalformedMessage, SendError, StateUnavailable, StoreUnavailable
from taskmq.model.envelope import decode_envelope
from taskmq.model.states import TERMINAL
from taskmq.model.units import to_datetime
from taskmq.reactions import Cause, JobEnded, Reaction, ReactionDelivery
from taskmq.reactions.model.pending import RecordedEvent
from taskmq.stored_jobs.new_jobs import name_of

__all__ = ["EndReactions"]

_log = logging.getLogger("taskmq.scheduler")

_PERIOD: Final = 1.0
_LEASE: Final = 30.0
_HOUR: Final = 3_600_000
# If there are more in a look, the earlier ones are left out.
_MOST: Final = 5_000
_KINDS: Final = frozenset({"cancel", "ended", "undispatched"})


class EndReactions:
    """A service that delivers such ends to the reactions of the app, in turns with other schedulers."""

    def __init__(self, app: TaskMQ, store: JobStore, *, me: str) -> None:
        self._app = app
        self._store = store
        self._leases = store.dispatching.leases
        self._me = me
        self._key = f"reactions:{app.name}"
        self._delivery = ReactionDelivery(app.name, app.producer)
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Look while no other scheduler does, until `stop`."""
        while not self._is_stopping.is_set():
            wait = _PERIOD
            try:
                token = await acquire_in_term(self._leases, self._key, owner=self._me, seconds=_LEASE)
                if isinstance(token, Lease):
                    wait = max(token.left, _PERIOD)
                else:
                    await self._look_while_leading(token)
            except (SendError, StateUnavailable, StoreUnavailable) as error:
                _log.warning("delivering ends of jobs to reactions failed, will retry: %s", error)
            await pause(self._is_stopping, wait)

    async def _look_while_leading(self, token: int) -> None:
        lookback = Lookback(past=_HOUR)
        began = await self._store.now_ms()
        try:
            while not self._is_stopping.is_set():
                now = await self._store.now_ms()
                for action in await self._store.actions(lookback.since(now), limit=_MOST):
                    await self._deliver(lookback, action, began)
                lookback.end(now)
                await pause(self._is_stopping, _PERIOD)
                if not await self._leases.renew(self._key, token=token, seconds=_LEASE):
                    return
        finally:
            await self._leases.release(self._key, token=token)

    async def _deliver(self, lookback: Lookback, action: JobAction, began: int) -> None:
        """Deliver an event of a job's history to the reactions that wait for such an end, once."""
        entry = action.entry
        key = (action.job_id, str(entry.version))
        if entry.kind not in _KINDS or entry.state not in TERMINAL or not lookback.is_new(key, entry.at):
            return
        waiting = [
            (reaction, number)
            for reaction, number, condition in self._app.reactions.waiting_for(action.task)
            if entry.state in condition.states and (entry.at >= began or self._is_repeatable(reaction))
        ]
        if not waiting or (job := await self._store.get(action.job_id)) is None:
            return
        name = name_of(job)
        ended = JobEnded(
            job_id=name, task=job.task, state=entry.state.value, finished=to_datetime(job.finished or entry.at)
        )
        cause = Cause(name, _root_of(job.body) or name)
        for reaction, number in waiting:
            await self._delivery.deliver(reaction, number, RecordedEvent(f"{name} {ended.state}", ended), cause=cause)

    def _is_repeatable(self, reaction: Reaction) -> bool:
        """Whether the same event again has no effect: the call is recorded, or another one has its id."""
        has_state = self._app.sessions.state_url is not None
        return has_state or not reaction.is_direct or reaction.task.call_plan.lane == "store"


def _root_of(body: bytes) -> str | None:
    try:
        return decode_envelope(body).root
    except MalformedMessage:
        return None

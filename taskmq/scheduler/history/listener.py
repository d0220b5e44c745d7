"""Counts what workers report of their runs, and keeps failures of the broker lane: one scheduler for all.

    events of jobs -> figures of this minute -> added to the store each five seconds
    jobs that the store itself has ended as expired -> the same figures
                   -> failures of plain jobs  ->, with what their errors said, of few of them

One scheduler at a time listens, by a lease; if it dies, another one does within half a minute, and what was sent
meanwhile is not counted. Events may be lost in any case: figures show how things are, and are no accounts.
"""

import asyncio
import logging
from collections import OrderedDict
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.broker import Broadcasting, Broker
from taskmq.contracts.history import RollupStore
from taskmq.contracts.jobs import JobStore
from taskmq.contracts.stores import Lease
from taskmq.durable.lease_terms import acquire_in_term
from taskmq.durable.lookback import Lookback
from taskmq.durable.service import pause
from taskmq.errors import BrokerUnavailable, StateUnavailable, StoreUnavailable, TopologyMismatch
from taskmq.events.stream import EventStream
from taskmq.model.history.rollups import EXPIRED, Rollup, RollupKey, RunFailure, failure_of, minute_of, rolled_up
from taskmq.model.states import JobState
from taskmq.model.telemetry.events import FAILURE_EVENTS, JOB_EVENTS, FailureEvent, JobEvent

__all__ = ["RunHistory"]

_log = logging.getLogger("taskmq.scheduler")

_KEY: Final = "history"
_LEASE: Final = 30.0
_PERIOD: Final = 5.0
_LOOK: Final = 10.0
_MOST_FAILURES: Final = 5_000
# Entries of all jobs' histories in one look; of more, earlier ones are left out.
_MOST_ACTIONS: Final = 5_000
_MOST_ROWS: Final = 20_000
# Of messages and tracebacks, characters of a minute: 288 MB a day, if it never stops.
_MOST_WORDS: Final = 200_000
_WORDS_PERIOD: Final = 60.0
_SAID_KNOWN: Final = 10_000


class RunHistory:
    """Listens in turns with others: a `Service`.

    Attributes:
        dropped: events that were not counted here, as far as is known.
    """

    def __init__(self, broker: Broker, store: JobStore, rollups: RollupStore, *, me: str) -> None:
        self.dropped = 0
        self._broker = broker
        self._store = store
        self._leases = store.dispatching.leases
        self._rollups = rollups
        self._me = me
        self._is_stopping = asyncio.Event()
        self._figures: dict[RollupKey, Rollup] = {}
        self._failures: list[RunFailure] = []
        self._words = 0
        self._words_until = 0.0
        # Failures whose plain event is still to come, by worker and number.
        self._said: OrderedDict[tuple[str, int], None] = OrderedDict()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Listen while no other scheduler does, until `stop`."""
        if not isinstance(self._broker, Broadcasting):
            return
        while not self._is_stopping.is_set():
            wait = _LOOK
            try:
                token = await acquire_in_term(self._leases, _KEY, owner=self._me, seconds=_LEASE)
                if isinstance(token, Lease):
                    wait = min(max(token.left, 1.0), _LOOK)
                else:
                    await self._listen(token)
            except (BrokerUnavailable, TopologyMismatch, StateUnavailable) as error:
                _log.warning("what workers report is not counted for now: %s", error)
            await pause(self._is_stopping, wait)

    async def _listen(self, token: int) -> None:
        """Listen for as long as the lease is ours."""
        try:
            async with EventStream(lambda: self._broker, JOB_EVENTS, FAILURE_EVENTS) as events:
                counting = asyncio.create_task(self._count(events), name="taskmq counts events")
                looks = Lookback()
                try:
                    await self._count_expired(looks)
                    while not self._is_stopping.is_set():
                        await pause(self._is_stopping, _PERIOD)
                        if not await self._leases.renew(_KEY, token=token, seconds=_LEASE):
                            _log.warning(
                                "another scheduler counts what workers report: this one was silent for too long"
                            )
                            return
                        await self._count_expired(looks)
                        await self._write()
                finally:
                    counting.cancel()
                    await asyncio.wait({counting})
                    self.dropped += events.missed + events.dropped
        finally:
            if self._is_stopping.is_set():
                await self._write()
                await self._leases.release(_KEY, token=token)

    async def _count(self, events: EventStream) -> None:
        async for event in events:
            if not isinstance(event, JobEvent):
                continue
            if isinstance(event, FailureEvent):
                self._keep_words(event)
                continue
            if len(self._figures) < _MOST_ROWS:
                rolled_up([event], self._figures)
            else:
                self.dropped += 1
            if (event.worker, event.number) in self._said:
                del self._said[event.worker, event.number]
            elif (failure := failure_of(event)) is not None:
                self._keep(failure)

    async def _count_expired(self, looks: Lookback) -> None:
        """Count the jobs that the store has ended as expired: it announces nothing, so it is asked."""
        try:
            now = await self._store.now_ms()
            actions = await self._store.actions(looks.since(now), limit=_MOST_ACTIONS)
        except StoreUnavailable as error:
            _log.warning("jobs that have expired are counted later: %s", error)
            return
        found = [
            RollupKey(minute_of(one.entry.at), one.task, one.queue, one.tenant)
            for one in actions
            if one.entry.kind == "ended"
            and one.entry.state is JobState.EXPIRED
            and looks.is_new((one.job_id, str(one.entry.version)), one.entry.at)
        ]
        if looks.end(now):
            return
        for key in found:
            self._figures.setdefault(key, Rollup(key)).merge_outcomes(Rollup(key, {EXPIRED: 1}))

    def _keep(self, failure: RunFailure) -> None:
        if len(self._failures) < _MOST_FAILURES:
            self._failures.append(failure)
        else:
            self.dropped += 1

    def _keep_words(self, event: FailureEvent) -> None:
        """Keep a failure with its words, or without where there are too many; its plain event comes after it."""
        if (failure := failure_of(event)) is None:
            return
        now = asyncio.get_running_loop().time()
        if now >= self._words_until:
            self._words, self._words_until = 0, now + _WORDS_PERIOD
        self._words += len(failure.message) + len(failure.traceback)
        if self._words > _MOST_WORDS:
            failure = replace(failure, message="", traceback="")
        self._keep(failure)
        self._said[event.worker, event.number] = None
        if len(self._said) > _SAID_KNOWN:
            self._said.popitem(last=False)

    async def _write(self) -> None:
        figures, self._figures = self._figures, {}
        failures, self._failures = self._failures, []
        if not figures and not failures:
            return
        try:
            await self._rollups.add(list(figures.values()), failures)
        except StoreUnavailable as error:
            _log.warning("reports of workers are kept for the next time: %s", error)
            # Perhaps it was written: to count a minute twice is worse than to lose five seconds of it.
            if error.is_certain:
                self._failures = failures + self._failures
                for key, one in figures.items():
                    self._figures.setdefault(key, Rollup(key)).merge(one)

"""Counting of runs that workers report, and recording of failures of sent jobs, by one scheduler for all.

    events of jobs -> figures of this minute -> added to the store every five seconds
    jobs that the store itself ended as expired -> the same figures
                   -> failures of plain jobs, with error messages for some of them
    jobs of each queue -> depths, once a minute

One scheduler at a time listens, under a lease. If it dies, another one takes over within half a minute; events in
between are not counted. Events may be lost in any case, so figures are estimates.
"""

import asyncio
import logging
from collections import OrderedDict
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.broker import Broker
from taskmq.contracts.broker_abilities import Broadcasting
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
from taskmq.scheduler.history.depths import DepthSampler

_log = logging.getLogger("taskmq.scheduler")

_KEY: Final = "history"
_LEASE: Final = 30.0
_PERIOD: Final = 5.0
_PERIOD_IDLE: Final = 10.0
_MOST_FAILURES: Final = 5_000
# Most history entries per poll; if there are more, earlier ones are left out.
_MOST_ACTIONS: Final = 5_000
_MOST_ROWS: Final = 20_000
# Most characters of messages and tracebacks per minute, at most 288 MB a day.
_MOST_TEXT: Final = 200_000
_TEXT_PERIOD: Final = 60.0
_MOST_PENDING: Final = 10_000


class RunHistory:
    """A service that listens to the workers' events, in turns with other schedulers.

    Attributes:
        dropped: known number of events that were not counted.
    """

    def __init__(
        self, broker: Broker, store: JobStore, rollups: RollupStore, sampler: DepthSampler, *, me: str
    ) -> None:
        self.dropped = 0
        self._broker = broker
        self._store = store
        self._leases = store.dispatching.leases
        self._rollups = rollups
        self._sampler = sampler
        self._me = me
        self._is_stopping = asyncio.Event()
        self._figures: dict[RollupKey, Rollup] = {}
        self._failures: list[RunFailure] = []
        self._text_size = 0
        self._text_until = 0.0
        # Failures whose plain event has not arrived yet, by worker and number.
        self._pending_events: OrderedDict[tuple[str, int], None] = OrderedDict()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Listen while no other scheduler does, until `stop`."""
        if not isinstance(self._broker, Broadcasting):
            return
        while not self._is_stopping.is_set():
            wait = _PERIOD_IDLE
            try:
                token = await acquire_in_term(self._leases, _KEY, owner=self._me, seconds=_LEASE)
                if isinstance(token, Lease):
                    wait = min(max(token.left, 1.0), _PERIOD_IDLE)
                else:
                    await self._listen(token)
            except (BrokerUnavailable, TopologyMismatch, StateUnavailable) as error:
                _log.warning("runs are not counted for now: %s", error)
            await pause(self._is_stopping, wait)

    async def _listen(self, token: int) -> None:
        """Listen while this scheduler holds the lease."""
        try:
            async with EventStream(lambda: self._broker, JOB_EVENTS, FAILURE_EVENTS) as events:
                counting = asyncio.create_task(self._count(events), name="taskmq counts events")
                lookback = Lookback()
                try:
                    await self._count_expired(lookback)
                    while not self._is_stopping.is_set():
                        await pause(self._is_stopping, _PERIOD)
                        if not await self._leases.renew(_KEY, token=token, seconds=_LEASE):
                            _log.warning(
                                "lost the lease for counting runs to another scheduler: it was not renewed in time"
                            )
                            return
                        await self._count_expired(lookback)
                        await self._write()
                        await self._sampler.sample()
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
                self._keep_failure_text(event)
                continue
            if len(self._figures) < _MOST_ROWS:
                rolled_up([event], self._figures)
            else:
                self.dropped += 1
            if (event.worker, event.number) in self._pending_events:
                del self._pending_events[event.worker, event.number]
            elif (failure := failure_of(event)) is not None:
                self._keep(failure)

    async def _count_expired(self, lookback: Lookback) -> None:
        """Count the jobs that the store ended as expired; it announces nothing, so it is polled."""
        try:
            now = await self._store.now_ms()
            actions = await self._store.actions(lookback.since(now), limit=_MOST_ACTIONS)
        except StoreUnavailable as error:
            _log.warning("store unavailable, expired jobs are counted later: %s", error)
            return
        found = [
            RollupKey(minute_of(one.entry.at), one.task, one.queue, one.tenant)
            for one in actions
            if one.entry.kind == "ended"
            and one.entry.state is JobState.EXPIRED
            and lookback.is_new((one.job_id, str(one.entry.version)), one.entry.at)
        ]
        if lookback.end(now):
            return
        for key in found:
            self._figures.setdefault(key, Rollup(key)).merge_outcomes(Rollup(key, {EXPIRED: 1}))

    def _keep(self, failure: RunFailure) -> None:
        if len(self._failures) < _MOST_FAILURES:
            self._failures.append(failure)
        else:
            self.dropped += 1

    def _keep_failure_text(self, event: FailureEvent) -> None:
        """Keep a failure with its message, or without if there are too many; its plain event follows."""
        if (failure := failure_of(event)) is None:
            return
        now = asyncio.get_running_loop().time()
        if now >= self._text_until:
            self._text_size, self._text_until = 0, now + _TEXT_PERIOD
        self._text_size += len(failure.message) + len(failure.traceback)
        if self._text_size > _MOST_TEXT:
            failure = replace(failure, message="", traceback="")
        self._keep(failure)
        self._pending_events[event.worker, event.number] = None
        if len(self._pending_events) > _MOST_PENDING:
            self._pending_events.popitem(last=False)

    async def _write(self) -> None:
        figures, self._figures = self._figures, {}
        failures, self._failures = self._failures, []
        if not figures and not failures:
            return
        try:
            await self._rollups.add(list(figures.values()), failures)
        except StoreUnavailable as error:
            _log.warning("store unavailable, will write the counts later: %s", error)
            # If it may have been written, losing five seconds is better than counting a minute twice.
            if error.is_certain:
                self._failures = failures + self._failures
                for key, one in figures.items():
                    self._figures.setdefault(key, Rollup(key)).merge(one)

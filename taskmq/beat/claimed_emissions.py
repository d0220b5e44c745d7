"""Publication of claimed occurrences within their leases."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from taskmq.beat.complaints import Complaints
from taskmq.beat.emitter import Emission, Emitter
from taskmq.beat.record_cache import RecordCache, RecordStep
from taskmq.beat.server_clock import ServerClock
from taskmq.durable.service import is_interruption
from taskmq.errors import SendError, StateUnavailable, TooLarge
from taskmq.schedules import ScheduleEntry
from taskmq.schedules.occurrence import due_instant
from taskmq.schedules.record import OccurrenceClaim, ScheduleRecord
from taskmq.schedules.status import OccurrenceCounts
from taskmq.schedules.triggers import jitter_of
from taskmq.schedules.turn import complete, give_up, release_claims

_log = logging.getLogger("taskmq.beat")

RETRY_PAUSE_MS: Final = 500
"""Milliseconds between two attempts."""
# Subject of complaints.
_BROKER: Final = "broker"
# Nothing is published this close to the end of its lease.
_MARGIN_MS: Final = 1_000

_ClaimChange = Callable[[ScheduleEntry, ScheduleRecord, list[OccurrenceClaim]], None]


class _BrokenSend(SendError):
    """The app's own code failed while a message was built."""


class ClaimedEmissions:
    """Publishes occurrences that this replica claimed.

    Args:
        pause: waits before the next attempt, or until the beat stops.

    Attributes:
        trouble: why occurrences are not sent; None if they are.
    """

    def __init__(
        self,
        emitter: Emitter,
        records: RecordCache,
        clock: ServerClock,
        counts: OccurrenceCounts,
        complaints: Complaints,
        *,
        is_stopping: asyncio.Event,
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        self.trouble: str | None = None
        self._emitter = emitter
        self._records = records
        self._clock = clock
        self._counts = counts
        self._complaints = complaints
        self._is_stopping = is_stopping
        self._pause = pause

    async def emit(self, emissions: Sequence[Emission]) -> None:
        """Publish within the lease, as often as needed, and record the confirms."""
        pending = list(emissions)
        while pending:
            now = self._clock.now_ms()
            in_time = [one for one in pending if now < one.claim.until - _MARGIN_MS]
            if len(in_time) < len(pending):
                _log.warning("leaving %d occurrences to other replicas", len(pending) - len(in_time))
            failures = await self._publish(in_time, now)
            await self._settle(in_time, failures)
            pending = [one for one, error in failures.items() if not isinstance(error, _BrokenSend | TooLarge)]
            if pending:
                self.trouble = f"occurrences are not sent: {failures[pending[0]]}"
                if self._complaints.is_news(_BROKER, failures[pending[0]]):
                    _log.warning(
                        "publishing %d occurrences failed, will retry: %s", len(pending), failures[pending[0]]
                    )
                if self._is_stopping.is_set():
                    await self._change_claims(pending, lambda _, record, claims: release_claims(record, claims))
                    return
                await self._pause()
            else:
                self.trouble = None
                self._complaints.forget(_BROKER)

    async def _publish(self, emissions: Sequence[Emission], now: int) -> dict[Emission, SendError]:
        """Publish; an emission whose middleware fails is left to the end of its lease, and blocks no other."""
        try:
            return await self._emitter.publish(emissions, now=now)
        except BaseException as error:
            # The app's own code, which must not stop the beat.
            if is_interruption(error):
                raise
            if len(emissions) == 1:
                name, instant = emissions[0].entry.name, emissions[0].claim.instant
                _log.error("schedule %s: giving up the occurrence of %d", name, instant, exc_info=error)
                return {emissions[0]: _BrokenSend(type(error).__name__)}
        failures: dict[Emission, SendError] = {}
        for one in emissions:
            failures.update(await self._publish([one], now))
        return failures

    async def _settle(self, emissions: Sequence[Emission], failures: dict[Emission, SendError]) -> None:
        confirmed = [one for one in emissions if one not in failures]
        at = self._clock.now_ms()

        for one in confirmed:
            late = (at - due_instant(one.entry, one.claim)) / 1000
            self._counts.count_emitted(one.entry.task.name, one.claim.kind, late=late)

        def confirm(entry: ScheduleEntry, record: ScheduleRecord, claims: list[OccurrenceClaim]) -> None:
            complete(record, claims, at=at, jitter=jitter_of(entry.name, entry.policy.jitter))

        await self._change_claims(confirmed, confirm)
        for one, error in failures.items():
            if isinstance(error, TooLarge):
                self._counts.count_failed(one.entry.task.name)
                _log.error(
                    "schedule %s: giving up the occurrence of %d: %s", one.entry.name, one.claim.instant, error
                )
                await self._change_claims([one], self._give_up)

    def _give_up(self, entry: ScheduleEntry, record: ScheduleRecord, claims: list[OccurrenceClaim]) -> None:
        give_up(record, claims, [self._emitter.job_id(Emission(entry, claim)) for claim in claims])

    async def _change_claims(self, emissions: Sequence[Emission], change: _ClaimChange) -> None:
        """Record the result of claims; if the state does not answer, retry for as long as they last."""
        parts: dict[str, tuple[ScheduleEntry, list[OccurrenceClaim]]] = {}
        for one in emissions:
            parts.setdefault(one.entry.name, (one.entry, []))[1].append(one.claim)

        def apply(entry: ScheduleEntry, claims: list[OccurrenceClaim], record: ScheduleRecord) -> None:
            change(entry, record, claims)

        steps = [RecordStep(name, partial(apply, *part)) for name, part in parts.items()]
        last = max((one.claim.until for one in emissions), default=0)
        while steps:
            try:
                await self._records.change(steps)
            except StateUnavailable as error:
                if self._clock.now_ms() + RETRY_PAUSE_MS >= last or self._is_stopping.is_set():
                    _log.error(
                        "recording the results of %d occurrences failed, so they may be published again: %s",
                        len(emissions),
                        error,
                    )
                    return
                await self._pause()
                continue
            return

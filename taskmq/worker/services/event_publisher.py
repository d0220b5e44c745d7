"""Publisher of a worker's events, off the path of its jobs.

A job's event is a small struct in a list; a timer publishes the list every 100 ms, by topic. Job events are off until
a reader requests them for a minute with the command `watch`; until then a job costs nothing here. Publishing never
waits. Events that the broker does not accept immediately, and those beyond 20,000 between two flushes, are dropped
and counted; the count is in every batch. The error message of a dead letter goes to a topic of its own, before the
job events.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from taskmq.contracts.broker import Delivery
from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.durable.service import pause
from taskmq.model.clock import Clock
from taskmq.model.envelope import Envelope
from taskmq.model.outcome import (
    EXPIRED,
    OUTCOME_NAMES,
    Cancelled,
    Dead,
    Interrupted,
    Outcome,
    Parked,
    Retried,
    Snoozed,
)
from taskmq.model.telemetry.events import (
    EXPIRED_REASON,
    Event,
    FailureEvent,
    JobEvent,
    WorkerEvent,
    encode_batch,
    failure_topic,
    job_topic,
    worker_topic,
)
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.model.topology import logical_queue
from taskmq.worker.run.stats import WorkerStats, first_wait
from taskmq.worker.services.error_words import ErrorWords

BEAT_SECONDS: Final = 10.0
_FLUSH_SECONDS: Final = 0.1
_PER_MESSAGE: Final = 500
_FAILURES_PER_MESSAGE: Final = 20
_MOST: Final = 20_000
_LONGEST_WATCH: Final = 600.0
_STARTED: Final = "started"


class EventPublisher:
    """Events of one worker process: a `Service`, which reports the worker while it runs.

    Args:
        broker: receives the events.
        stats: observed while a reader listens.
        name: the worker's.
        status: returns the worker's status.
        clock: for the instants of events.
        words: provides the message and traceback of a dead letter's event.
        is_permanent: whether job events are always sent, not only while a reader listens.
        beat_seconds: interval of heartbeats.

    Attributes:
        dropped: number of events that were not sent.
    """

    def __init__(
        self,
        broker: Broadcasting,
        stats: WorkerStats,
        *,
        name: str,
        status: Callable[[], WorkerStatus],
        clock: Clock,
        words: ErrorWords,
        is_permanent: bool = False,
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        self.dropped = 0
        self._broker = broker
        self._stats = stats
        self._name = name
        self._status = status
        self._clock = clock
        self._words = words
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._waiting: list[JobEvent] = []
        self._failures: list[FailureEvent] = []
        self._queues: dict[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_watching = False
        self._is_permanent = is_permanent
        self._beat_seconds = beat_seconds
        self._is_stopping = asyncio.Event()
        self._until: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Report the worker as online, until `stop`."""
        if self._is_stopping.is_set():
            return
        self.tell("online")
        if self._is_permanent:
            self.watch()
        try:
            while not await pause(self._is_stopping, self._beat_seconds):
                self.tell("beat")
        finally:
            self.close()
            self.tell("offline")

    def watch(self, seconds: float | None = None) -> None:
        """Send job events for this many seconds, at most ten minutes; None: until `close`."""
        if not self._is_watching:
            self._is_watching = True
            self._stats.listen(self)
            self._stats.on_park = self._on_park
            if seconds is not None:
                # A new reader learns which workers exist.
                self.tell("beat")
        if self._until is not None:
            self._until.cancel()
            self._until = None
        if seconds is None:
            self._is_permanent = True
        elif not self._is_permanent:
            self._until = self._loop.call_later(min(seconds, _LONGEST_WATCH), self._stop_watching)

    def tell(self, event: str) -> None:
        """Send an event of the worker."""
        self.flush()
        self._number += 1
        told = WorkerEvent(event=event, number=self._number, at=self._clock.now_ms(), status=self._status())
        self._send(worker_topic(event), [told])

    def flush(self) -> None:
        """Publish the collected events."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        self._send_failures()
        waiting, self._waiting = self._waiting, []
        topics: dict[tuple[bool, str, str], list[JobEvent]] = {}
        for event in waiting:
            key = (event.event != _STARTED, event.event, event.queue)
            topics.setdefault(key, []).append(event)
        # Starts first, so that a job's start is not behind its end.
        for (_, kind, queue), events in sorted(topics.items(), key=_starts_first):
            topic = job_topic(kind, queue)
            for at in range(0, len(events), _PER_MESSAGE):
                self._send(topic, events[at : at + _PER_MESSAGE])

    def close(self) -> None:
        """Stop observing, and publish what is collected. May be called twice."""
        self._stop_watching()
        self.flush()

    def _stop_watching(self) -> None:
        if self._until is not None:
            self._until.cancel()
            self._until = None
        if self._is_watching:
            self._is_watching = False
            self._stats.stop_listening(self)
            self._stats.on_park = None

    def _send_failures(self) -> None:
        """Publish error messages; a rejected one does not count as a dropped event."""
        failures, self._failures = self._failures, []
        for start in range(0, len(failures), _FAILURES_PER_MESSAGE):
            queues: dict[str, list[FailureEvent]] = {}
            for failure in failures[start : start + _FAILURES_PER_MESSAGE]:
                queues.setdefault(failure.queue, []).append(failure)
            for queue, events in queues.items():
                self._broker.announce(failure_topic(queue), encode_batch(self._name, events, dropped=self.dropped))

    def _send(self, topic: str, events: Sequence[Event]) -> None:
        if not self._broker.announce(topic, encode_batch(self._name, events, dropped=self.dropped)):
            self.dropped += len(events)

    def _add(self, event: JobEvent) -> None:
        self._waiting.append(event)
        if self._timer is None:
            self._timer = self._loop.call_later(_FLUSH_SECONDS, self.flush)

    def _next_number(self) -> int:
        """Return the next event's number; 0 if there is no room for it."""
        if len(self._waiting) >= _MOST:
            self.dropped += 1
            return 0
        self._number += 1
        return self._number

    def _queue_of(self, delivery: Delivery) -> str:
        physical = delivery.queue
        name = self._queues.get(physical)
        if name is None:
            name = self._queues[physical] = logical_queue(physical)
        return name

    def on_start(self, delivery: Delivery, envelope: Envelope, job_id: str, at: int | None) -> None:
        """See `RunListener`."""
        if not (number := self._next_number()):
            return
        now = self._clock.now_ms() if at is None else at
        self._add(
            JobEvent(
                event=_STARTED,
                number=number,
                at=now,
                job_id=job_id,
                task=envelope.task,
                queue=self._queue_of(delivery),
                attempt=envelope.attempt,
                tenant=envelope.tenant or "",
                is_stored=envelope.store is not None,
                waited=first_wait(delivery, envelope, started=now),
            )
        )

    def on_end(  # noqa: PLR0917 - called for each run, where keywords cost time
        self,
        delivery: Delivery,
        envelope: Envelope,
        job_id: str,
        outcome: Outcome,
        seconds: float,
        processor: int | None,
    ) -> None:
        """See `RunListener`."""
        if not (number := self._next_number()):
            return
        delay = error = None
        reason: str | None = None
        if isinstance(outcome, Retried):
            delay, error = outcome.delay.total_seconds(), type(outcome.error).__name__
        elif isinstance(outcome, Dead):
            error, reason = type(outcome.error).__name__, outcome.reason
            if envelope.store is None:
                self._add_words(delivery, envelope, outcome, number=number, job_id=job_id, seconds=seconds)
        elif isinstance(outcome, Snoozed):
            delay = outcome.delay.total_seconds()
        elif isinstance(outcome, Interrupted) and outcome.delay is not None:
            delay, error = outcome.delay.total_seconds(), type(outcome.error).__name__
        elif isinstance(outcome, Cancelled) and outcome.reason == EXPIRED:
            reason = EXPIRED_REASON
        self._add(
            JobEvent(
                event=OUTCOME_NAMES[type(outcome)],
                number=number,
                at=self._clock.now_ms(),
                job_id=job_id,
                task=envelope.task,
                queue=self._queue_of(delivery),
                attempt=envelope.attempt,
                tenant=envelope.tenant or "",
                seconds=round(seconds, 6),
                processor=None if processor is None else processor / 1000,
                delay=delay,
                error=error,
                reason=reason,
                is_stored=envelope.store is not None,
            )
        )

    def _add_words(
        self, delivery: Delivery, envelope: Envelope, outcome: Dead, *, number: int, job_id: str, seconds: float
    ) -> None:
        """Add an error message; separate from the event, so that successes do not pay for it."""
        if (words := self._words.of(envelope.task, outcome.error)) is None:
            return
        message, traceback = words
        self._failures.append(
            FailureEvent(
                event=OUTCOME_NAMES[Dead],
                number=number,
                at=self._clock.now_ms(),
                job_id=job_id,
                task=envelope.task,
                queue=self._queue_of(delivery),
                attempt=envelope.attempt,
                tenant=envelope.tenant or "",
                seconds=round(seconds, 6),
                error=type(outcome.error).__name__,
                reason=outcome.reason,
                message=message,
                traceback=traceback,
            )
        )

    def _on_park(self, delivery: Delivery, parked: Parked) -> None:
        # With a delay it is not parked yet: another worker may know the task.
        if parked.delay is None and (number := self._next_number()):
            self._add(
                JobEvent(
                    event="parked",
                    number=number,
                    at=self._clock.now_ms(),
                    job_id=delivery.message_id or "",
                    task=delivery.task or "",
                    queue=self._queue_of(delivery),
                )
            )


def _starts_first(entry: tuple[tuple[bool, str, str], list[JobEvent]]) -> bool:
    return entry[0][0]

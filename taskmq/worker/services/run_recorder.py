"""Recorder of the runs of sent jobs in queues with `record="all"`, off the path of the jobs.

    run starts -> noted in a dictionary -> still running at the next flush: reported as running
    run ends   -> a small struct in a list -> flushed every half a second -> reports queue, confirmed

A job waits for nothing here: it is acknowledged whether or not its run is reported. Reports that the broker does not
accept are sent again with the next flush, at most 20,000 of them; more runs are not recorded, and are counted. Runs
that a killed worker had not flushed are missing. Publishing may repeat a report, which changes nothing
(`taskmq.model.history.sent_runs`).
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Final

import msgspec

from taskmq.contracts.broker import Broker, Delivery, Outgoing
from taskmq.durable.service import pause
from taskmq.errors import SendError
from taskmq.model.clock import Clock
from taskmq.model.envelope import JSON, Envelope
from taskmq.model.history.sent_runs import RUNS_TASK, RecordedRun, RunReport, encode_runs, facts_of
from taskmq.model.outcome import (
    EXPIRED,
    AlreadyDone,
    Cancelled,
    Dead,
    ErrorRecord,
    Interrupted,
    Outcome,
    Retried,
    Snoozed,
    Succeeded,
    type_name,
)
from taskmq.model.states import JobState
from taskmq.model.topology import logical_queue
from taskmq.model.units import to_ms
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.run_logs import RunLines
from taskmq.worker.services.error_words import ErrorWords

_log = logging.getLogger("taskmq.worker")

_PERIOD: Final = 0.5
_MOST: Final = 20_000
_STATES: Final[Mapping[type[Outcome], JobState]] = {
    Succeeded: JobState.SUCCEEDED,
    AlreadyDone: JobState.SUCCEEDED,
    Retried: JobState.RETRYING,
    Snoozed: JobState.SCHEDULED,
    Interrupted: JobState.QUEUED,
    Dead: JobState.FAILED,
    Cancelled: JobState.CANCELLED,
}
# A job that was turned back without a run has nothing to record.
_TURNED_BACK: Final = (Snoozed, Interrupted, Retried)


class _Start(msgspec.Struct):
    envelope: Envelope
    job_id: str
    queue: str
    at: int
    is_reported: bool = False


class RunRecorder:
    """Reports the runs of one worker: a `Service`.

    Args:
        queues: public names of the recorded queues.
        reports: the queue for the reports.
        worker: its name.
        timeout: maximum seconds of a publish.
        words: provides messages and tracebacks of errors.
        lines: captured log lines, sent before the ends of their runs; None: no capture.
        most: maximum of runs that wait for the broker.

    Attributes:
        dropped: number of runs that were not recorded since the start.
    """

    def __init__(
        self,
        broker: Broker,
        stats: WorkerStats,
        *,
        queues: Collection[str],
        reports: str,
        worker: str,
        timeout: float,
        clock: Clock,
        words: ErrorWords,
        lines: RunLines | None = None,
        most: int = _MOST,
    ) -> None:
        self.dropped = 0
        self._broker = broker
        self._stats = stats
        self._recorded = frozenset(queues)
        self._reports = reports
        self._worker = worker
        self._timeout = timeout
        self._clock = clock
        self._words = words
        self._lines = lines
        self._most = most
        # By job and attempt: a message that came twice may run twice at the same time.
        self._starts: dict[tuple[str, int], list[_Start]] = {}
        self._waiting: list[RunReport] = []
        self._new_drops = 0
        # Public names of physical queues; None for a queue that is not recorded.
        self._queues: dict[str, str | None] = {}
        self._is_stopping = asyncio.Event()
        # Before the worker consumes, so that no run is missed.
        stats.listen(self)

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Report runs until `stop`; then report those that the worker interrupted."""
        try:
            while not await pause(self._is_stopping, _PERIOD):
                await self.flush()
        finally:
            self._stats.stop_listening(self)
            now = self._clock.now_ms()
            for starts in self._starts.values():
                for start in starts:
                    self._add(start, RecordedRun(started=start.at, ended=now, state=JobState.QUEUED))
            self._starts.clear()
            await self.flush()
            if self._waiting:
                self._count_drops(len(self._waiting))

    def on_start(self, delivery: Delivery, envelope: Envelope, job_id: str, at: int | None) -> None:
        """See `RunListener`."""
        if envelope.store is None and (queue := self._queue_of(delivery)) is not None:
            started = self._clock.now_ms() if at is None else at
            start = _Start(envelope, job_id, queue, started)
            self._starts.setdefault((job_id, envelope.attempt), []).append(start)

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
        start = self._take_start((job_id, envelope.attempt), seconds)
        state = _STATES.get(type(outcome))
        if state is None:
            return
        if start is None:
            if (
                isinstance(outcome, _TURNED_BACK)
                or envelope.store is not None
                or (queue := self._queue_of(delivery)) is None
            ):
                return
            start = _Start(envelope, job_id, queue, self._clock.now_ms())
        ended = start.at + round(seconds * 1000)
        delay, error = _reason_of(outcome)
        if isinstance(outcome, Cancelled) and outcome.reason == EXPIRED:
            state = JobState.EXPIRED
        self._add(
            start,
            RecordedRun(
                started=start.at,
                ended=ended,
                state=state,
                due=None if delay is None else ended + to_ms(delay),
                error=self._error_of(envelope.task, error),
                processor_ms=processor,
            ),
        )

    async def flush(self) -> None:
        """Publish the collected reports; those that the broker does not accept stay."""
        for starts in self._starts.values():
            for start in starts:
                if not start.is_reported:
                    start.is_reported = True
                    self._add(start, RecordedRun(started=start.at))
        reports, self._waiting = self._waiting, []
        if self._lines is not None:
            ended = {each.job.name: each.run.ended for each in reports if each.run.ended is not None}
            await self._lines.send(self._reports, self._lines.sent_runs(ended))
        published = 0
        try:
            for count, body in encode_runs(reports):
                message = Outgoing(queue=self._reports, body=body, content_type=JSON, job_id="", task=RUNS_TASK)
                await self._broker.publish(message, timeout=self._timeout)
                published += count
        except SendError as error:
            _log.warning("%d runs of sent jobs are not recorded yet: %s", len(reports) - published, error)
        finally:
            self._waiting = reports[published:] + self._waiting
        if self._new_drops:
            _log.warning("%d runs of sent jobs will not be recorded: too many wait for the broker", self._new_drops)
            self._new_drops = 0

    def _add(self, start: _Start, run: RecordedRun) -> None:
        if len(self._waiting) >= self._most:
            self._count_drops(1)
            return
        job = facts_of(start.envelope, name=start.job_id, queue=start.queue, started=start.at)
        self._waiting.append(
            RunReport(job, msgspec.structs.replace(run, attempt=start.envelope.attempt, worker=self._worker))
        )

    def _take_start(self, key: tuple[str, int], seconds: float) -> _Start | None:
        """Return the start of a run that took so long; None if there was no run."""
        if (starts := self._starts.get(key)) is None:
            return None
        if len(starts) == 1:
            del self._starts[key]
            return starts[0]
        began = self._clock.now_ms() - seconds * 1000
        found = min(starts, key=lambda start: abs(start.at - began))
        starts.remove(found)
        return found

    def _count_drops(self, count: int) -> None:
        self.dropped += count
        self._new_drops += count

    def _error_of(self, task: str, error: BaseException | str | None) -> ErrorRecord | None:
        if error is None:
            return None
        if isinstance(error, str):
            return ErrorRecord(type_name="JobCancelled", message=error)
        message, traceback = self._words.of(task, error) or ("", "")
        return ErrorRecord(type_name=type_name(error), message=message, traceback=traceback)

    def _queue_of(self, delivery: Delivery) -> str | None:
        physical = delivery.queue
        try:
            return self._queues[physical]
        except KeyError:
            name = logical_queue(physical)
            found = self._queues[physical] = name if name in self._recorded else None
            return found


def _reason_of(outcome: Outcome) -> tuple[timedelta | None, BaseException | str | None]:
    """Return the delay before the next run, and why the run did not succeed."""
    if isinstance(outcome, Retried):
        return outcome.delay, outcome.error
    if isinstance(outcome, Snoozed):
        return outcome.delay, None
    if isinstance(outcome, Interrupted):
        return outcome.delay, outcome.error
    if isinstance(outcome, Dead):
        return None, outcome.error
    return None, outcome.reason if isinstance(outcome, Cancelled) else None

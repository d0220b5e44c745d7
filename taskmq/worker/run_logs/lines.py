"""Log lines of runs that wait to be sent: bounded for each run and for the worker; further lines are counted.

    any thread: add -> the run's lines -> every half a second, and before each report -> one message for each queue

Lines are sent before the report of their run's end, over the same queue, so a reader that sees the end of a job finds
its log. A message that cannot be sent is dropped with its lines: logs must not hold up jobs.
"""

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from taskmq.contracts.broker import Broker, Outgoing
from taskmq.durable.task_set import TaskSet
from taskmq.errors import SendError
from taskmq.model.clock import Clock
from taskmq.model.envelope import JSON
from taskmq.model.history.logs import LOGS_TASK, LONGEST_LINE, RunLine, RunLog, encode_logs, shorten_line
from taskmq.model.history.redaction import Redactor
from taskmq.model.history.sent_runs import SentJobFacts
from taskmq.run.log_capture import PrintedText

_log = logging.getLogger("taskmq.worker")

_PERIOD: Final = 0.5
_MOST_OF_RUN: Final = 1_000
_MOST_WAITING: Final = 10_000
_RUNS_KNOWN: Final = 5_000
# Characters of a line to redact: more than are kept, so that nothing is cut before it is redacted. A megabyte takes a
# second, on the event loop if a coroutine logs it.
_LONGEST_REDACTED: Final = 2 * LONGEST_LINE
_WARNING: Final = 30
_OURS: Final = "taskmq.worker"


class LoggedRun(NamedTuple):
    """The run that a line belongs to.

    Attributes:
        id, token: identify the run: of a sent job, its name and the start of the run in ms.
        reports: the queue for its lines.
        sent: facts of a sent job; None: the job is stored.
    """

    id: str
    token: int
    attempt: int
    reports: str
    sent: SentJobFacts | None = None


class _Run:
    """The lines of one run."""

    __slots__ = ("begun", "count", "dropped", "of", "waiting")

    def __init__(self, of: LoggedRun) -> None:
        self.of = of
        self.count = 0
        self.dropped = 0
        self.waiting: list[RunLine] = []
        self.begun = PrintedText(longest=_LONGEST_REDACTED)


class RunLines:
    """Collects lines, and sends them.

    Args:
        worker: its name.
        timeout: maximum seconds of a publish.
        most: maximum of lines of one run; further lines are only counted.

    Attributes:
        dropped: number of lines that were not sent since the start.
    """

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        *,
        worker: str,
        timeout: float,
        redactor: Redactor,
        most: int = _MOST_OF_RUN,
    ) -> None:
        self.dropped = 0
        self._broker = broker
        self._clock = clock
        self._worker = worker
        self._timeout = timeout
        self._redactor = redactor
        self._most = most
        # Reentrant: a finaliser may log while this thread holds it.
        self._lock = threading.RLock()
        # Lines in transit, even to another queue, precede later ones.
        self._order = asyncio.Lock()
        self._runs: OrderedDict[tuple[str, int], _Run] = OrderedDict()
        self._waiting = 0
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False
        self._sending = TaskSet("worker logs", failure="lines of logs were not sent")

    def add(self, of: LoggedRun, level: int, logger: str, message: str) -> None:
        """Add a line; may be called from any thread."""
        with self._lock:
            if not self._has_room(self._run(of)):
                return
        # Not under the lock: it takes longer than all the rest.
        name, text = shorten_line(logger, self._redactor.redact(message[:_LONGEST_REDACTED]))
        line = RunLine(self._clock.now_ms(), min(max(level, 0), 1_000), name, text)
        with self._lock:
            run = self._run(of)
            if not self._has_room(run):
                return
            run.count += 1
            run.waiting.append(line)
            self._waiting += 1
            if self._is_scheduled:
                return
            self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._loop.call_later, _PERIOD, self._flush)
        except RuntimeError:
            # The loop is closed: nothing is sent any more.
            return

    def write(self, of: LoggedRun, level: int, stream: str, text: str) -> None:
        """Add printed text, from any thread: whole lines, and at the end of the run an unfinished one."""
        with self._lock:
            lines = self._run(of).begun.lines(stream, level, text)
        for line in lines:
            self.add(of, level, stream, line)

    def drop(self, of: LoggedRun, count: int) -> None:
        """Count lines that were dropped before they arrived here."""
        with self._lock:
            self._run(of).dropped += count
            self.dropped += count

    async def send(self, queue: str, ended: Sequence[tuple[str, int]] = ()) -> None:
        """Send the waiting lines of a reports queue, and for ended runs the number of dropped lines.

        Args:
            ended: jobs and tokens of ended runs.
        """
        async with self._order:
            with self._lock:
                for key in ended:
                    self._end_lines(key)
                logs = self._take(queue)
                for key in ended:
                    if (run := self._runs.pop(key, None)) is not None and run.dropped:
                        logs.append(self._drop_notice(run))
            if logs:
                await self._publish(queue, logs)

    def sent_runs(self, ended: Mapping[str, int]) -> list[tuple[str, int]]:
        """Return the runs of sent jobs, as `send` takes them, that started before these instants (ms).

        Args:
            ended: by the jobs' names.
        """
        with self._lock:
            return [
                key
                for key, run in self._runs.items()
                if run.of.sent is not None and run.of.token <= ended.get(run.of.id, -1)
            ]

    async def aclose(self) -> None:
        """Send the waiting lines, and wait for those in transit."""
        for queue in self._queues():
            await self.send(queue)
        await self._sending.aclose(grace=self._timeout)

    async def _publish(self, queue: str, logs: list[RunLog]) -> None:
        lost = sum(len(log.lines) for log in logs)
        try:
            for body in encode_logs(logs):
                message = Outgoing(queue=queue, body=body, content_type=JSON, job_id="", task=LOGS_TASK)
                await self._broker.publish(message, timeout=self._timeout)
            lost = 0
        except SendError as error:
            _log.warning("up to %d log lines for %s are lost: %s", lost, queue, error)
        finally:
            with self._lock:
                self.dropped += lost

    def _has_room(self, run: _Run) -> bool:
        """Return whether the run may have one more line; otherwise count the line."""
        if run.count < self._most and self._waiting < _MOST_WAITING:
            return True
        run.dropped += 1
        self.dropped += 1
        return False

    def _run(self, of: LoggedRun) -> _Run:
        key = (of.id, of.token)
        run = self._runs.get(key)
        if run is None:
            run = self._runs.setdefault(key, _Run(of))
            # A thread left behind by a run may log forever, and its end is never reported.
            if len(self._runs) > _RUNS_KNOWN:
                _, oldest = self._runs.popitem(last=False)
                self._waiting -= len(oldest.waiting)
                self.dropped += len(oldest.waiting) + len(oldest.begun)
        return run

    def _end_lines(self, key: tuple[str, int]) -> None:
        if (run := self._runs.get(key)) is not None:
            for stream, level, text in run.begun.end():
                self.add(run.of, level, stream, text)

    def _take(self, queue: str) -> list[RunLog]:
        logs: list[RunLog] = []
        for run in tuple(self._runs.values()):
            if run.waiting and run.of.reports == queue:
                lines, run.waiting = run.waiting, []
                self._waiting -= len(lines)
                logs.append(self._log_of(run, run.count - len(lines), lines))
        return logs

    def _drop_notice(self, run: _Run) -> RunLog:
        text = f"{run.dropped} further lines of this run were not kept: it may have {self._most}"
        return self._log_of(run, run.count, [RunLine(self._clock.now_ms(), _WARNING, _OURS, text)])

    def _log_of(self, run: _Run, first: int, lines: list[RunLine]) -> RunLog:
        return RunLog(
            id=run.of.id,
            token=run.of.token,
            attempt=run.of.attempt,
            worker=self._worker,
            first=first,
            lines=lines,
            sent=run.of.sent,
        )

    def _queues(self) -> list[str]:
        with self._lock:
            return sorted({run.of.reports for run in tuple(self._runs.values()) if run.waiting})

    def _flush(self) -> None:
        with self._lock:
            self._is_scheduled = False
        for queue in self._queues():
            self._sending.start(self.send(queue))

"""Records of a worker's runs: their log lines, and the runs of sent jobs in recorded queues."""

from collections.abc import Mapping, Sequence
from typing import Final

from taskmq.app import TaskMQ
from taskmq.executors import ProcessExecutor
from taskmq.model.history.redaction import Redactor
from taskmq.model.topology import WorkQueue, reports_queue
from taskmq.options.task_options import ExecutorKind
from taskmq.run.execution import Executor
from taskmq.run.log_capture import LogCapture
from taskmq.worker.config import WorkerConfig
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.run_logs import KeptRuns, RunLines
from taskmq.worker.services.error_words import ErrorWords
from taskmq.worker.services.run_recorder import RunRecorder
from taskmq.worker.settlement.error_text import ErrorTexts
from taskmq.worker.setup import capture_settings

_TIMEOUT: Final = 5.0


class RunRecords:
    """The records of one worker.

    Attributes:
        redactor: replaces secrets in texts of errors and in log lines.
        lines: log lines of runs; None: none are kept.
        recorder: reports runs of sent jobs; None: no queue is recorded.
    """

    def __init__(
        self, app: TaskMQ, config: WorkerConfig, queues: Sequence[WorkQueue], stats: WorkerStats, *, worker: str
    ) -> None:
        self.redactor = Redactor([config.redact] if config.redact else [])
        self.lines: RunLines | None = None
        self.recorder: RunRecorder | None = None
        self._app = app
        self._config = config
        self._queues = [queue.name for queue in queues if queue.record == "all"]
        self._stats = stats
        self._worker = worker
        # The queue for reports on sent jobs is that of the partition that every store has.
        self._reports = reports_queue(app.name, 0)
        self._capture: LogCapture | None = None

    def begin(self, executors: Mapping[ExecutorKind, Executor]) -> None:
        """Capture log lines and record runs from now on, as configured."""
        session, clock = self._app.sessions.current(), self._app.sessions.clock
        timeout = min(session.send_timeout, _TIMEOUT)
        if (settings := capture_settings(self._config)) is not None:
            self.lines = RunLines(
                session.broker,
                clock,
                worker=self._worker,
                timeout=timeout,
                redactor=self.redactor,
                most=self._config.log_lines,
            )
            sink = KeptRuns(self.lines, recorded=self._queues, reports=self._reports)
            self._capture = LogCapture(sink, settings)
            self._capture.install()
            if isinstance(processes := executors.get("process"), ProcessExecutor):
                processes.lines = sink
        if self._queues:
            self.recorder = RunRecorder(
                session.broker,
                self._stats,
                queues=self._queues,
                reports=self._reports,
                worker=self._worker,
                timeout=timeout,
                clock=clock,
                words=self.error_words(),
                lines=self.lines,
            )

    def error_words(self) -> ErrorWords:
        """Return the words for errors in reports and events."""
        return ErrorWords(ErrorTexts(self.redactor), self._config.report_errors)

    async def aclose(self) -> None:
        """Stop capturing log lines, and send the rest of them."""
        if self._capture is not None:
            self._capture.remove()
        if self.lines is not None:
            await self.lines.aclose()

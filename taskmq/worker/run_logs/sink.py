"""Sink for log lines of runs that are kept: those of stored jobs, and of sent jobs in recorded queues."""

from collections.abc import Collection

from taskmq.run.context import Context
from taskmq.run.facts import invitation_of, sent_facts_of
from taskmq.worker.run_logs.lines import LoggedRun, RunLines


class KeptRuns:
    """A `LineSink` and a `ProcessLines`: passes on the lines of runs that are kept, from any process.

    Args:
        recorded: queues whose sent jobs are recorded.
        reports: the queue for reports about sent jobs.
    """

    def __init__(self, lines: RunLines, *, recorded: Collection[str] = (), reports: str = "") -> None:
        self._lines = lines
        self._recorded = frozenset(recorded)
        self._reports = reports

    def is_wanted(self, context: Context) -> bool:
        """See `LineSink`."""
        return invitation_of(context) is not None or context.queue in self._recorded

    def add(self, context: Context, level: int, logger: str, message: str) -> None:
        """See `LineSink`."""
        if (run := self._run(context)) is not None:
            self._lines.add(run, level, logger, message)

    def write(self, context: Context, level: int, stream: str, text: str) -> None:
        """See `LineSink`."""
        if (run := self._run(context)) is not None:
            self._lines.write(run, level, stream, text)

    def drop(self, context: Context, count: int) -> None:
        """Count lines of a run that were dropped."""
        if (run := self._run(context)) is not None:
            self._lines.drop(run, count)

    def _run(self, context: Context) -> LoggedRun | None:
        if (invitation := invitation_of(context)) is not None:
            return LoggedRun(invitation.id, invitation.token, context.attempt, invitation.reports)
        if context.queue not in self._recorded:
            return None
        return LoggedRun(context.job_id, context.started, context.attempt, self._reports, sent_facts_of(context))

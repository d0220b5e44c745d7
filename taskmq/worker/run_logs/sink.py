"""Sink for log lines of stored jobs' runs."""

from taskmq.run.context import Context, invitation_of
from taskmq.worker.run_logs.lines import RunLines

__all__ = ["StoredRuns"]


class StoredRuns:
    """A `LineSink` and a `ProcessLines`: passes on the lines of stored jobs, from any process."""

    def __init__(self, lines: RunLines) -> None:
        self._lines = lines

    def is_wanted(self, context: Context) -> bool:
        """See `LineSink`."""
        return invitation_of(context) is not None

    def add(self, context: Context, level: int, logger: str, message: str) -> None:
        """See `LineSink`."""
        if (invitation := invitation_of(context)) is not None:
            self._lines.add(invitation, context.attempt, level, logger, message)

    def write(self, context: Context, level: int, stream: str, text: str) -> None:
        """See `LineSink`."""
        if (invitation := invitation_of(context)) is not None:
            self._lines.write(invitation, context.attempt, level, stream, text)

    def drop(self, context: Context, count: int) -> None:
        """Count lines of a run that were dropped."""
        if (invitation := invitation_of(context)) is not None:
            self._lines.drop(invitation, context.attempt, count)

"""Reports with tokens that this store never issued: logged at most once a minute.

A forger with access to the reports queue may invent them. Or they belong to dispatches that a restored store has
forgotten together with their key, or come from a worker that does not return the proof of its invitation.
"""

import logging
from typing import Final

from taskmq.model.jobs.reports import Report

_log = logging.getLogger("taskmq.scheduler")

_QUIET: Final = 60.0


class Inventions:
    """Log of invented reports from one queue.

    Args:
        queue: name of the queue.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._count = 0
        self._quiet_until = float("-inf")

    def note(self, report: Report, *, now: float) -> None:
        """Count a report, and log all since the last log line, at most once a minute.

        Args:
            now: seconds of a monotonic clock.
        """
        self._count += 1
        if now < self._quiet_until:
            return
        _log.error(
            "%s: ignored %d reports with tokens that this store never issued; the last one says that worker %.100r "
            "has %s job %.100r: check who may publish to this queue, and whether that worker returns the proofs of "
            "its invitations",
            self._queue,
            self._count,
            report.worker,
            report.kind,
            report.id,
        )
        self._count = 0
        self._quiet_until = now + _QUIET

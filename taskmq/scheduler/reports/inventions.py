"""Reports with tokens that this store has not given out: logged now and then, however many come.

A forger who may publish to the reports queue makes them up; or they are of dispatches that a restored store has
forgotten together with the key that proves them, or of a worker that does not echo the proof of its invitation.
"""

import logging
from typing import Final

from taskmq.model.jobs.reports import Report

__all__ = ["Inventions"]

_log = logging.getLogger("taskmq.scheduler")

_QUIET: Final = 60.0


class Inventions:
    """Invented reports that came by one queue.

    Args:
        queue: its name.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._count = 0
        self._quiet_until = float("-inf")

    def note(self, report: Report, *, now: float) -> None:
        """Take one more; what came since the last line of the log is in the next one, at most once a minute.

        Args:
            now: of a monotonic clock, seconds.
        """
        self._count += 1
        if now < self._quiet_until:
            return
        _log.error(
            "%s: %d reports have tokens that this store has not given out, and change nothing; the last one says "
            "that worker %.100r has %s job %.100r: see who may publish to this queue, or which worker leaves out "
            "the proof of its invitations",
            self._queue,
            self._count,
            report.worker,
            report.kind,
            report.id,
        )
        self._count = 0
        self._quiet_until = now + _QUIET

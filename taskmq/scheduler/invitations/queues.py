"""Queues of one partition's invitations: declared before the first message, and paused while the broker refuses."""

import asyncio
import logging

from taskmq.client.session import Session
from taskmq.errors import (
    BrokerUnavailable,
    InvalidOption,
    QueueMissing,
    SendError,
    TopologyMismatch,
    Unroutable,
    UnsupportedFeature,
)
from taskmq.scheduler.partition import PartitionState
from taskmq.scheduler.reports import ReportsQueue

_log = logging.getLogger("taskmq.scheduler")


class InvitationQueues:
    """The queues that one partition's jobs are published to, and the one for their reports."""

    def __init__(self, session: Session, state: PartitionState, reports: ReportsQueue) -> None:
        self._session = session
        self._state = state
        self._reports = reports

    async def declare(self, names: set[str]) -> dict[str, SendError]:
        """Declare missing queues. Returns the failures by queue."""
        failures: dict[str, SendError] = {}
        for name in names:
            try:
                queue = self._state.rules.queue(name)
                if not self._session.is_declared(queue):
                    await self._session.declare([queue])
                await self._reports.declare([name])
            except BrokerUnavailable as error:
                return dict.fromkeys(names, error)
            except QueueMissing as error:
                failures[name] = Unroutable(error.queue, *filter(None, [error.hint]))
            except (TopologyMismatch, InvalidOption, UnsupportedFeature) as error:
                failures[name] = Unroutable(name, str(error))
        return failures

    def pause(self, name: str, reason: SendError) -> None:
        """Dispatch no jobs of a queue for a while, because the broker refused one."""
        loop = asyncio.get_running_loop()
        seconds = self._state.refuse(name, str(reason), now=loop.time())
        if seconds is not None:
            _log.warning("broker refuses messages for queue %s, next try in %g s: %s", name, seconds, reason)
            loop.call_later(seconds, self._state.has_work.set)

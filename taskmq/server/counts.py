"""What one server has answered since it started, for monitoring."""

import os
import time

import msgspec

from taskmq.model.telemetry.metrics import RequestCount, ServerSnapshot
from taskmq.version import VERSION

__all__ = ["ServerCounts", "ServerStatus"]


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A server at one moment. Travels as JSON; fields may be added.

    Attributes:
        started: ms since the epoch.
        requests: that were answered since then; `failed`: those with a status from 500 on.
        streams: of events, that are open.
    """

    version: str
    pid: int
    app: str
    started: int
    requests: int
    failed: int
    streams: int


class ServerCounts:
    """Counts answers by what was asked for."""

    def __init__(self) -> None:
        self.started: int = time.time_ns() // 1_000_000
        self._counts: dict[str, RequestCount] = {}

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """One more request was answered.

        Args:
            operation: as the API's description calls it; "" where there is no such path.
        """
        count = self._counts.get(operation)
        if count is None:
            count = self._counts[operation] = RequestCount(operation)
        name = str(status)
        count.statuses[name] = count.statuses.get(name, 0) + 1
        count.took.add(seconds)

    def snapshot(self, *, streams: int) -> ServerSnapshot:
        """The numbers of now."""
        return ServerSnapshot(VERSION, list(self._counts.values()), streams)

    def status(self, *, app: str, streams: int) -> ServerStatus:
        """Return what was counted, for `/status`."""
        statuses = [pair for count in self._counts.values() for pair in count.statuses.items()]
        return ServerStatus(
            version=VERSION,
            pid=os.getpid(),
            app=app,
            started=self.started,
            requests=sum(number for _, number in statuses),
            failed=sum(number for status, number in statuses if status >= "500"),
            streams=streams,
        )

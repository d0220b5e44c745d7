"""Counters of one server since its start, for monitoring."""

import os
import time

import msgspec

from taskmq.model.telemetry.metrics import RequestCount, ServerSnapshot
from taskmq.version import VERSION


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a server. Encoded as JSON; fields may be added.

    Attributes:
        started: the start time, in milliseconds since the epoch.
        requests: requests answered since the start; `failed`: those with a status of 500 or above.
        streams: open event streams.
    """

    version: str
    pid: int
    app: str
    started: int
    requests: int
    failed: int
    streams: int


class ServerCounts:
    """Request counters by operation and status."""

    def __init__(self) -> None:
        self.started: int = time.time_ns() // 1_000_000
        self._counts: dict[str, RequestCount] = {}

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Count one response by operation and status.

        Args:
            operation: the operation id in the OpenAPI document; "" for an unknown path.
        """
        counter = self._counts.get(operation)
        if counter is None:
            counter = self._counts[operation] = RequestCount(operation)
        name = str(status)
        counter.statuses[name] = counter.statuses.get(name, 0) + 1
        counter.took.add(seconds)

    def snapshot(self, *, streams: int) -> ServerSnapshot:
        """Return the current metrics."""
        return ServerSnapshot(VERSION, list(self._counts.values()), streams)

    def status(self, *, app: str, streams: int) -> ServerStatus:
        """Return the status, for `/status`."""
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

"""Recording of the versions of the app that workers announce.

    worker.beat, every 10 s, by broadcast -> heard -> once a second: new ones; once a minute: all

Each scheduler writes what it hears; the store keeps one row per worker and version. Anyone with write access to the
broker can report versions, so at most 10,000 rows are written in a minute.
"""

import asyncio
import logging
from typing import Final

from taskmq.contracts.history import VersionStore
from taskmq.durable.service import pause
from taskmq.errors import InvalidOption, StoreUnavailable
from taskmq.model.clock import Clock
from taskmq.model.telemetry.app_versions import check_app_version
from taskmq.model.telemetry.worker_status import WorkerStatus

_log = logging.getLogger("taskmq.scheduler")

_PERIOD: Final = 1.0
_AGAIN: Final = 60.0
_MOST: Final = 10_000
_LONGEST_NAME: Final = 255


class VersionRecorder:
    """A service that keeps the store's list of versions up to date."""

    def __init__(self, versions: VersionStore, clock: Clock) -> None:
        self._versions = versions
        self._clock = clock
        self._heard: set[tuple[str, str]] = set()
        # When each was written in the last minute, in this order.
        self._written: dict[tuple[str, str], float] = {}
        self._is_stopping = asyncio.Event()
        self._has_trouble = False

    def receive(self, status: WorkerStatus) -> None:
        """Queue a worker's version. A worker without one, or with an invalid one, is ignored."""
        try:
            one = (status.name[:_LONGEST_NAME], check_app_version(status.app_version))
        except InvalidOption:
            return
        if one not in self._written and len(self._heard) + len(self._written) < _MOST:
            self._heard.add(one)

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Write versions once a second until `stop`. Waits while the store is unavailable."""
        while not await pause(self._is_stopping, _PERIOD):
            self._forget_old()
            if not self._heard:
                continue
            heard = frozenset(self._heard)
            try:
                await self._versions.report(heard, at=self._clock.now_ms())
                self._has_trouble = False
            except StoreUnavailable as error:
                if not self._has_trouble:
                    _log.warning("store unavailable, will record versions of workers later: %s", error)
                self._has_trouble = True
                continue
            self._heard -= heard
            self._written |= dict.fromkeys(heard, _now())

    def _forget_old(self) -> None:
        while self._written and _now() - next(iter(self._written.values())) >= _AGAIN:
            del self._written[next(iter(self._written))]


def _now() -> float:
    return asyncio.get_running_loop().time()

"""Slot for a worker process: filled again whenever its process ends unexpectedly."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from taskmq.model.backoff import backoff_pause
from taskmq.supervisor.child_process import ChildProcess
from taskmq.supervisor.exit_reason import ExitReason
from taskmq.worker.child_protocol import EXIT_DISMISSED, EXIT_USAGE

_log = logging.getLogger("taskmq.worker")

READY_TIMEOUT: Final = 60.0
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_HEALTHY_AFTER: Final = 30.0
_NOT_STARTED: Final = "the new code did not start: keeping the old worker"
_NOT_READY: Final = f"the new process did not consume within {READY_TIMEOUT:g} s: keeping the old worker"


class ProcessSlot:
    """Keeps one process running.

    Args:
        number: from 0.
        start: starts a new process, which stops immediately if all are stopping.
        judge: returns the reason of an end, from its exit code.
        proven: returns whether any process of the supervisor has ever consumed: the app can run.
        burst: whether a process that ends with 0 is done, and not replaced.

    Attributes:
        current: the newest process; None between an end and the next start.
        failures: number of unexpected ends in a row; a process that lived for half a minute starts a new row.
        last_ending: reason of the last of them.
        next_try: time of the next start, by the monotonic clock; None while there is a process.
        is_replacing: whether a successor is being started.
    """

    def __init__(
        self,
        number: int,
        *,
        start: Callable[["ProcessSlot"], Awaitable[ChildProcess]],
        judge: Callable[[int], ExitReason],
        proven: Callable[[], bool],
        burst: bool,
    ) -> None:
        self.number = number
        self.current: ChildProcess | None = None
        self.failures = 0
        self.last_ending: ExitReason | None = None
        self.next_try: float | None = None
        self.is_replacing = False
        self._leaving = asyncio.Event()
        self._start = start
        self._judge = judge
        self._proven = proven
        self._burst = burst
        self._hurry = asyncio.Event()
        self._changed = asyncio.Event()

    @property
    def is_retiring(self) -> bool:
        """Whether the slot is being removed."""
        return self._leaving.is_set()

    async def run(self) -> Literal["done", "dismissed", "unusable"]:
        """Return once the slot was removed, its process was dismissed, or, in a burst, is done.

        `unusable` means that the process cannot run at all, and none ever could, so retrying is useless.
        """
        while not self._leaving.is_set():
            started = time.monotonic()
            try:
                self.current = await self._start(self)
            except OSError as error:
                # No memory for a fork, or no descriptors: that may pass.
                await self._pause(f"cannot start a worker process: {error}")
                continue
            if self._leaving.is_set():
                self.current.drain()
            child, code = await self._wait_for_end()
            self.current = None
            if code == EXIT_DISMISSED:
                self._leaving.set()
                return "dismissed"
            if self._leaving.is_set() or (self._burst and code == 0):
                break
            if code == EXIT_USAGE and not self._proven():
                return "unusable"
            if time.monotonic() - started > _HEALTHY_AFTER:
                self.failures = 0
            self.last_ending = self._judge(code)
            await self._pause(f"worker process {child.pid} {self.last_ending}")
        return "done"

    def retire(self) -> None:
        """Remove the slot; its process drains."""
        self._leaving.set()
        self._hurry.set()
        if self.current is not None:
            self.current.drain()

    def restart_now(self) -> None:
        """Start the next process immediately."""
        self._hurry.set()
        self._hurry.clear()

    async def replace(self, why: str) -> ChildProcess | None:
        """Start a new process, and drain the old one once the new one consumes.

        Returns:
            The old process, which drains. None if nothing was replaced: the new one did not become ready, and
            the old one stays; or there was no old one, and the slot starts a new one by itself.
        """
        old = self.current
        if old is None or self._leaving.is_set() or self.is_replacing:
            return None
        self.is_replacing = True
        try:
            try:
                new = await self._start(self)
            except OSError as error:
                _log.error("cannot start a worker process: %s; keeping the old one", error)
                return None
            _log.info("worker process %d: %s; its successor is process %d", old.pid, why, new.pid)
            if not await new.becomes_ready(READY_TIMEOUT):
                if not self._leaving.is_set():
                    _log.error(_NOT_STARTED if new.ended.done() else _NOT_READY)
                new.kill()
            elif self.current is old and not self._leaving.is_set():
                self.current = new
                self._changed.set()
                old.drain()
                return old
            else:
                # The old one ended meanwhile: its slot starts another by itself.
                new.drain()
            await asyncio.wait((new.ended,))
            return None
        finally:
            self.is_replacing = False

    async def _wait_for_end(self) -> tuple[ChildProcess, int]:
        """Wait for the end of the current process, but not of one that was replaced meanwhile."""
        while True:
            child = self.current
            assert child is not None
            self._changed.clear()
            changed = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.wait((child.ended, changed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            if child is self.current and child.ended.done():
                return child, child.ended.result()

    async def _pause(self, what: str) -> None:
        self.failures += 1
        pause = backoff_pause(self.failures, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        _log.error(
            "%s (%s); starting another in %.1f s",
            what,
            "once" if self.failures == 1 else f"{self.failures} times in a row",
            pause,
        )
        self.next_try = time.monotonic() + pause
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), pause)
        self.next_try = None

"""The process above the worker processes: starts them, restarts those that crash, stops them in order."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import msgspec

from taskmq.worker.child import EXIT_USAGE, Order, Ready

__all__ = ["Supervisor"]

_log = logging.getLogger("taskmq.worker")

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_HEALTHY_AFTER: Final = 30.0
_READY_TIMEOUT: Final = 60.0


class Supervisor:
    """Keeps `processes` worker processes running.

    Args:
        order: what each of them is to do.
        on_ready: called once, when the first of them consumes.
        watch: folders whose Python files are watched; a change replaces the processes, one by one, by new
            ones, and only if the new code gets ready.
    """

    def __init__(
        self,
        order: Order,
        *,
        processes: int,
        on_ready: Callable[[Ready], None] | None = None,
        watch: tuple[Path, ...] = (),
    ) -> None:
        self._order = order
        self._processes = processes
        self._on_ready = on_ready
        self._watch = watch
        self._children: set[_Child] = set()
        self._signals = 0
        self._stopping = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        """Run until stopped by a signal, or, in a burst, until all have ended. The exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._receive)
        watcher = asyncio.create_task(self._reload_on_change()) if self._watch else None
        try:
            await asyncio.gather(*(self._keep_running() for _ in range(self._processes)))
        finally:
            if watcher is not None:
                watcher.cancel()
                await asyncio.gather(watcher, return_exceptions=True)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        return self._exit_code

    def stop(self) -> None:
        """Drain all, as the first signal does."""
        self._receive()

    def _receive(self) -> None:
        self._signals += 1
        self._stopping.set()
        words = {1: "draining; again to give back what runs, a third time to kill", 2: "giving back what runs"}
        _log.warning("stopping: %s", words.get(self._signals, "killing"))
        for child in self._children:
            child.send(signal.SIGTERM if self._signals < 3 else signal.SIGKILL)

    async def _keep_running(self) -> None:
        """One seat: a process that is started again whenever it ends before its time."""
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            started = time.monotonic()
            child = await self._start()
            code = await self._ended(child)
            if self._stopping.is_set() or (self._order.config.burst and code == 0):
                return
            if code == EXIT_USAGE and not child.was_ready:
                # It cannot run at all; trying again would say the same.
                self._exit_code = EXIT_USAGE
                self.stop()
                return
            pause = _FIRST_PAUSE if time.monotonic() - started > _HEALTHY_AFTER else min(pause * 2, _LONGEST_PAUSE)
            _log.error("worker process %d ended with %s; starting another in %.1f s", child.pid, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _ended(self, child: "_Child") -> int:
        """The exit code of the process in this seat; a reload may put a successor there meanwhile."""
        while True:
            code = await child.wait()
            self._children.discard(child)
            if child.successor is None:
                return code
            child = child.successor

    async def _start(self) -> "_Child":
        child = await _Child.start(self._order)
        self._children.add(child)
        if self._signals:
            child.send(signal.SIGTERM)
        child.on_ready(self._say_ready)
        return child

    def _say_ready(self, ready: Ready) -> None:
        if self._on_ready is not None:
            self._on_ready(ready)
            self._on_ready = None

    async def _reload_on_change(self) -> None:
        async for changed in _changes(self._watch):
            _log.warning("changed: %s; reloading", ", ".join(sorted(changed)))
            for old in list(self._children):
                await self._replace(old)

    async def _replace(self, old: "_Child") -> None:
        new = await _Child.start(self._order)
        self._children.add(new)
        if not await new.becomes_ready(_READY_TIMEOUT):
            _log.error("the new code does not start: keeping the old worker")
            new.send(signal.SIGKILL)
            await new.wait()
            self._children.discard(new)
            return
        old.successor = new
        old.send(signal.SIGTERM)


class _Child:
    """A worker process, from this side."""

    def __init__(self, process: asyncio.subprocess.Process, status: asyncio.StreamReader) -> None:
        self._process = process
        self._ready = asyncio.create_task(self._read_ready(status))
        self.successor: _Child | None = None

    @classmethod
    async def start(cls, order: Order) -> "_Child":
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "taskmq.worker.child",
                msgspec.json.encode(order).decode(),
                str(writing),
                # Its end tells the child that this process is gone, however that came about.
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(writing,),
                # Ctrl-C in a terminal reaches this process alone, which stops its children in order.
                start_new_session=True,
            )
        finally:
            os.close(writing)
        status = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(status), os.fdopen(reading, "rb")
        )
        return cls(process, status)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def was_ready(self) -> bool:
        return self._ready.done() and not self._ready.cancelled() and self._ready.result() is not None

    async def becomes_ready(self, timeout: float) -> bool:
        """Whether it consumes within `timeout` seconds."""
        await asyncio.wait((self._ready,), timeout=timeout)
        return self.was_ready

    def on_ready(self, call: Callable[[Ready], None]) -> None:
        def done(task: "asyncio.Task[Ready | None]") -> None:
            if not task.cancelled() and (ready := task.result()) is not None:
                call(ready)

        self._ready.add_done_callback(done)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        code = await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await asyncio.wait((self._ready,))
        return code

    async def _read_ready(self, status: asyncio.StreamReader) -> Ready | None:
        line = await status.readline()
        return msgspec.json.decode(line, type=Ready) if line else None


async def _changes(folders: tuple[Path, ...]) -> AsyncIterator[set[str]]:
    # Only `--watch` needs it, and it is an extra.
    from watchfiles import PythonFilter, awatch  # pyright: ignore[reportUnknownVariableType] - of trio's, not there

    async for changes in awatch(*folders, watch_filter=PythonFilter(), debounce=200, step=50):
        yield {path for _, path in changes}

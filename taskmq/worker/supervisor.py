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
_LAST_WORDS: Final = 1.0


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
        self._wake = asyncio.Event()
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
            # Those that a reload has started and that have no seat yet.
            for child in self._children:
                child.send(signal.SIGTERM)
            await asyncio.gather(*(child.wait() for child in self._children))
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        return self._exit_code

    def stop(self) -> None:
        """Drain all, as the first signal does."""
        self._receive()

    def _receive(self) -> None:
        self._signals += 1
        self._stopping.set()
        self._wake.set()
        words = {1: "draining; again to give back what runs, a third time to kill", 2: "giving back what runs"}
        _log.warning("stopping: %s", words.get(self._signals, "killing"))
        for child in self._children:
            child.send(signal.SIGTERM if self._signals < 3 else signal.SIGKILL)

    async def _keep_running(self) -> None:
        """One seat: a process that is started again whenever it ends before its time."""
        pause = _FIRST_PAUSE
        was_ready = False
        while not self._stopping.is_set():
            started = time.monotonic()
            child, code = await self._ended(await self._start())
            was_ready = was_ready or child.was_ready
            if self._stopping.is_set() or (self._order.config.burst and code == 0):
                return
            if code == EXIT_USAGE and not was_ready:
                # It cannot run at all; trying again would say the same.
                self._exit_code = EXIT_USAGE
                self.stop()
                return
            pause = _FIRST_PAUSE if time.monotonic() - started > _HEALTHY_AFTER else min(pause * 2, _LONGEST_PAUSE)
            _log.error("worker process %d ended with %s; starting another in %.1f s", child.pid, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)

    async def _ended(self, child: "_Child") -> "tuple[_Child, int]":
        """The process that was last in this seat, and its exit code; reloads put successors there."""
        while True:
            code = await child.wait()
            self._children.discard(child)
            if child.successor is None:
                return child, code
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
        try:
            async for changed in _changes(self._watch):
                _log.warning("changed: %s; reloading", ", ".join(sorted(changed)))
                # A seat whose process does not start tries the new code now.
                self._wake.set()
                self._wake.clear()
                for old in list(self._children):
                    await self._replace(old)
        except (OSError, RuntimeError):
            # The system may refuse to watch: the worker goes on as it is.
            _log.exception("changes are not seen any more")

    async def _replace(self, old: "_Child") -> None:
        if old.successor is not None or self._stopping.is_set():
            return
        new = await self._start()
        if not await new.becomes_ready(_READY_TIMEOUT):
            _log.error("the new code does not start: keeping the old worker")
            new.send(signal.SIGKILL)
        elif old in self._children:
            old.successor = new
            old.send(signal.SIGTERM)
            return
        else:
            # The old one has ended meanwhile; its seat starts, or has started, the new code by itself.
            new.send(signal.SIGTERM)
        await new.wait()
        self._children.discard(new)


class _Child:
    """A worker process, from this side."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        lifeline: int,
        status: asyncio.StreamReader,
        transport: asyncio.BaseTransport,
    ) -> None:
        self._process = process
        self._transport = transport
        self._lifeline: int | None = lifeline
        self._ready = asyncio.create_task(self._read_ready(status))
        self.successor: _Child | None = None

    @classmethod
    async def start(cls, order: Order) -> "_Child":
        # Pipes of our own, because asyncio counts a process as running for as long as anybody holds one of its.
        orders, lifeline = os.pipe()
        reading, writing = os.pipe()
        try:
            os.write(lifeline, msgspec.json.encode(order) + b"\n")
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "taskmq.worker.child",
                str(writing),
                # Its end tells the child that this process is gone, however that came about.
                stdin=orders,
                pass_fds=(writing,),
                # Ctrl-C in a terminal reaches this process alone, which stops its children in order.
                start_new_session=True,
            )
        except BaseException:
            os.close(lifeline)
            os.close(reading)
            raise
        finally:
            os.close(orders)
            os.close(writing)
        status = asyncio.StreamReader(limit=1 << 24)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(status), os.fdopen(reading, "rb")
        )
        return cls(process, lifeline, status, transport)

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
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        # Nobody but the process writes there, unless it has forked.
        await asyncio.wait((self._ready,), timeout=_LAST_WORDS)
        self._ready.cancel()
        self._transport.close()
        return code

    async def _read_ready(self, status: asyncio.StreamReader) -> Ready | None:
        line = await status.readline()
        return msgspec.json.decode(line, type=Ready) if line.endswith(b"\n") else None


async def _changes(folders: tuple[Path, ...]) -> AsyncIterator[set[str]]:
    # Only `--watch` needs it, and it is an extra.
    from watchfiles import PythonFilter, awatch  # pyright: ignore[reportUnknownVariableType] - of trio's, not there

    async for changes in awatch(*folders, watch_filter=PythonFilter(), debounce=200, step=50):
        yield {path for _, path in changes}

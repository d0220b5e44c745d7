"""A worker process, from the supervisor's side."""

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable

import msgspec

from taskmq.model.telemetry.metrics import Count
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.worker.child_protocol import ChildReady, ChildReport, ChildSpec, read_line

_log = logging.getLogger("taskmq.worker")

_LAST_WORDS = 1.0
_FRESH = 15.0
_LONGEST_LINE = 1 << 24


class ChildProcess:
    """A worker process, as its supervisor sees it.

    Attributes:
        ended: done with its exit code, as `subprocess` defines it, once it has ended and its messages are read.
        counts: since it started, by task and queue.
        report: the last one; None before the first.
        heard: time of its last message, by the monotonic clock; at first, its start.
        ready_at: when it started to consume; None before.
        luck: 0 to 1, drawn at random for it.
        is_draining: whether it was asked to drain.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        lifeline: int,
        status: asyncio.StreamReader,
        transport: asyncio.BaseTransport,
        *,
        on_ready: Callable[[ChildReady], None],
        patience: float,
    ) -> None:
        self._process = process
        self._patience = patience
        self._deadline: asyncio.TimerHandle | None = None
        self._transport = transport
        self._lifeline = lifeline
        self._on_ready = on_ready
        self._is_ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read(status))
        self.counts: dict[tuple[str, str], Count] = {}
        self.report: ChildReport | None = None
        self.heard = time.monotonic()
        self.ready_at: float | None = None
        self.luck = random.random()
        self.is_draining = False
        self.ended = asyncio.create_task(self._end())

    @classmethod
    async def start(
        cls, order: ChildSpec, *, on_ready: Callable[[ChildReady], None], patience: float
    ) -> "ChildProcess":
        """Start a process with its spec.

        Args:
            patience: seconds after a drain request until it is killed.
        """
        # Separate pipes, because asyncio counts a process as running while any process holds one of its pipes.
        orders, lifeline = os.pipe()
        reading, writing = os.pipe()
        try:
            os.write(lifeline, msgspec.json.encode(order) + b"\n")
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "taskmq.worker.child",
                str(writing),
                # Its end shows the child that this process is gone, for whatever reason.
                stdin=orders,
                pass_fds=(writing,),
                # Ctrl-C in a terminal reaches only this process, which stops its children in order.
                start_new_session=True,
            )
        except BaseException:
            os.close(lifeline)
            os.close(reading)
            raise
        finally:
            os.close(orders)
            os.close(writing)
        status = asyncio.StreamReader(limit=_LONGEST_LINE)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(status), os.fdopen(reading, "rb")
        )
        return cls(process, lifeline, status, transport, on_ready=on_ready, patience=patience)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> WorkerStatus | None:
        """Status as last reported, if any."""
        return None if self.report is None else self.report.status

    @property
    def was_ready(self) -> bool:
        return self.ready_at is not None

    @property
    def consumes(self) -> bool:
        """Whether it consumes, or was paused, by its last report; silence means that it does not."""
        if not self.was_ready or self.is_draining or self.ended.done() or self.silent > _FRESH:
            return False
        return self.status is None or (self.status.state in ("running", "starting", "paused") and not self.is_stuck)

    @property
    def is_paused(self) -> bool:
        """Whether an operator paused it, by its last report."""
        return self.status is not None and self.status.state == "paused"

    @property
    def is_stuck(self) -> bool:
        """Whether each of its slots is occupied by a job whose outcome cannot be settled."""
        return self.status is not None and 0 < self.status.slots <= self.status.unsettled

    @property
    def silent(self) -> float:
        """Seconds since its last message."""
        return time.monotonic() - self.heard

    async def becomes_ready(self, timeout: float) -> bool:
        """Return whether it consumes within `timeout` seconds."""
        ready = asyncio.create_task(self._is_ready.wait())
        await asyncio.wait((ready, self.ended), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        return self.was_ready and not self.ended.done()

    def drain(self) -> None:
        """Ask it to stop accepting jobs and to finish running ones. Only the first call has an effect.

        A process that hangs is killed after `patience`.
        """
        if not self.is_draining:
            self.is_draining = True
            self.send(signal.SIGTERM)
            self._deadline = asyncio.get_running_loop().call_later(self._patience, self._give_up)

    def requeue_now(self) -> None:
        """Ask it to return running jobs if it drains already, otherwise to drain."""
        if self.is_draining:
            # Not SIGTERM again: two pending signals of one kind are delivered once.
            self.send(signal.SIGINT)
        else:
            self.drain()

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _give_up(self) -> None:
        _log.error("worker process %d has not drained within %g s: killing it", self.pid, self._patience)
        self.kill()

    async def _end(self) -> int:
        code = await self._process.wait()
        if self._deadline is not None:
            self._deadline.cancel()
        os.close(self._lifeline)
        # Only the process writes there, unless it has forked.
        await asyncio.wait((self._reading,), timeout=_LAST_WORDS)
        self._reading.cancel()
        self._transport.close()
        return code

    async def _read(self, status: asyncio.StreamReader) -> None:
        while line := await self._next_line(status):
            match read_line(line):
                case ChildReady() as ready:
                    self.heard = self.ready_at = time.monotonic()
                    self._is_ready.set()
                    self._on_ready(ready)
                case ChildReport() as report:
                    self.heard = time.monotonic()
                    self.report = report
                    self.counts.update({(count.task, count.queue): count for count in report.counts})
                case None:
                    continue

    async def _next_line(self, status: asyncio.StreamReader) -> bytes:
        try:
            return await status.readline()
        except ValueError:
            # A line without an end is not one of a worker's; the next one may be.
            return b"\n"

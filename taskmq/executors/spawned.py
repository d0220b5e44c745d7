"""An executor process, from the worker's side."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, cast

from taskmq.errors import WorkerLost
from taskmq.executors.frames import (
    Assembly,
    Control,
    DroppedLines,
    ExecutorReady,
    FromProcess,
    LoggedLine,
    Request,
    RunAnswer,
    Setup,
    decode_from_process,
    frame,
)
from taskmq.executors.journal_pipe import Reply, Told
from taskmq.executors.memory import MemoryGroup, resident_bytes

_RETIRE_SECONDS: Final = 5.0
_IMPORT_SECONDS: Final = 60.0
# Time to read what a process wrote before it ended.
_LAST_WORDS_SECONDS: Final = 1.0


class Spawned:
    """A process that runs one task at a time.

    Attributes:
        runs: number of ended runs.
        devices: GPUs of its last run: objects on one cannot move to another.
        group: limits its memory, once a run of it has a limit.
    """

    def __init__(
        self, transport: asyncio.SubprocessTransport, protocol: "_Protocol", control: asyncio.WriteTransport
    ) -> None:
        self._transport = transport
        self._protocol = protocol
        # The transport of a process has one for each of its pipes; this is the one to write to.
        self._requests = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        self._control = control
        self._is_ready = False
        self._answering = 0
        self.pid = transport.get_pid()
        self.runs = 0
        self.devices: tuple[str, ...] = ()
        self.group: MemoryGroup | None = None

    @classmethod
    async def start(cls, target: str, setup: Setup) -> "Spawned":
        """Start a process; it imports the app while this returns."""
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        try:
            control = await _writer(loop, writing)
            try:
                transport, protocol = await loop.subprocess_exec(
                    partial(_Protocol, loop),
                    sys.executable,
                    "-m",
                    "taskmq.executors.child",
                    target,
                    str(reading),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=None,
                    pass_fds=(reading,),
                    # Ctrl-C in a terminal goes to the worker, which decides about its children.
                    start_new_session=True,
                )
            except BaseException:
                control.close()
                raise
        finally:
            os.close(reading)
        spawned = cls(transport, protocol, control)
        spawned._write(setup)
        return spawned

    @property
    def is_alive(self) -> bool:
        return not (self._protocol.is_over or self._protocol.has_exited)

    @property
    def memory(self) -> int:
        """Resident bytes of the process; 0 if the system does not report them."""
        return resident_bytes(self.pid)

    def tell(self, content: Control) -> None:
        """Send a control frame about the current run; does nothing if the process has ended."""
        if not self._control.is_closing():
            self._control.writelines(frame(content))

    async def ask(
        self, request: Request, hear: Callable[[Told | LoggedLine | DroppedLines], Awaitable[Reply | None]]
    ) -> RunAnswer:
        """Return its answer; frames before it go to `hear`, which returns the reply, if the process waits for one.

        Raises:
            WorkerLost: it ended instead, or answered for another run.
        """
        self._write(request)
        while True:
            content = await self._next()
            if isinstance(content, RunAnswer):
                if (content.number, content.pid) != (request.number, self._answering):
                    raise WorkerLost("the task's process answered for another run: a fork of it may still be running")
                self.runs += 1
                return content
            if not isinstance(content, ExecutorReady) and (reply := await hear(content)) is not None:
                self.tell(reply)

    async def ready(self) -> None:
        """Return once the process has imported the app.

        Raises:
            WorkerLost: it ended instead, or takes longer than a minute.
        """
        if self._is_ready:
            return
        try:
            async with asyncio.timeout(_IMPORT_SECONDS):
                content = await self._next()
        except TimeoutError:
            raise WorkerLost(f"the task's process has not imported the app within {_IMPORT_SECONDS:g} s") from None
        if isinstance(content, ExecutorReady):
            self._is_ready, self._answering = True, content.pid

    def _write(self, content: Setup | Request) -> None:
        self._requests.writelines(frame(content))

    async def _next(self) -> FromProcess:
        payload = await self._protocol.next()
        if payload is None:
            raise WorkerLost(f"the task's process ended: {await self._end()}")
        return decode_from_process(payload)

    async def _end(self) -> str:
        try:
            async with asyncio.timeout(_RETIRE_SECONDS):
                return _describe(await self._protocol.wait_exit())
        except TimeoutError:
            self.kill_now()
            await self._protocol.wait_exit()
            return "it had closed its pipes to the worker, and was killed"

    async def retire(self) -> None:
        """Let the process end by itself, and kill it if it does not."""
        try:
            self._requests.close()
            async with asyncio.timeout(_RETIRE_SECONDS):
                await self._protocol.wait_exit()
        except TimeoutError:
            pass
        finally:
            await self.kill()

    async def kill(self) -> None:
        """Kill the process and its children. May be called twice."""
        self.kill_now()
        self._requests.close()
        self._control.close()
        await self._protocol.wait_exit()
        self._transport.close()
        if self.group is not None:
            self.group.remove()

    def kill_now(self) -> None:
        """Kill the process and its children without waiting for their end; does nothing once it has ended."""
        # Its children were killed when it ended. By now another process may have its id.
        if not self._protocol.has_exited:
            _kill_group(self.pid)


class _Protocol(asyncio.SubprocessProtocol):
    """Keeps a process's frames until a caller asks, and kills its children as soon as it ends.

    Its forks hold its pipes open: otherwise neither the end of the answers nor of the process would be noticed.

    Attributes:
        is_over: whether no more frames arrive, or none could be delivered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.SubprocessTransport | None = None
        self._assembly = Assembly()
        self._said: deque[bytes] = deque()
        self._listener: asyncio.Future[None] | None = None
        self._exited: asyncio.Future[int] = loop.create_future()
        self.is_over = False

    @property
    def has_exited(self) -> bool:
        return self._exited.done()

    async def next(self) -> bytes | None:
        """Return the content of the next frame; None after the last one."""
        while not self._said:
            if self.is_over:
                return None
            self._listener = self._loop.create_future()
            await self._listener
        return self._said.popleft()

    async def wait_exit(self) -> int:
        """Return its exit code, once it has one; negative for a signal."""
        return await asyncio.shield(self._exited)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transport is one without being registered as one.
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002 - the signature is asyncio's
        self._said.extend(self._assembly.add(data))
        if self._said:
            self._wake()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        self._end()

    def process_exited(self) -> None:
        assert self._transport is not None
        _kill_group(self._transport.get_pid())
        code = self._transport.get_returncode()
        assert code is not None
        self._exited.set_result(code)
        # A child in another session holds the pipes open forever.
        self._loop.call_later(_LAST_WORDS_SECONDS, self._end)

    def _end(self) -> None:
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._listener is not None and not self._listener.done():
            self._listener.set_result(None)


async def _writer(loop: asyncio.AbstractEventLoop, descriptor: int) -> asyncio.WriteTransport:
    opening = loop.create_task(loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(descriptor, "wb", 0)))
    try:
        transport, _ = await asyncio.shield(opening)
    except asyncio.CancelledError:
        # Not cancelled halfway: uvloop would close the descriptor and leave it to the file, which closes its next
        # owner's.
        transport, _ = await opening
        transport.close()
        raise
    return transport


def _kill_group(pid: int) -> None:
    """Kill a process and its children; it leads its own session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    if code == -signal.SIGKILL:
        return "killed by SIGKILL, as the system does when memory runs out"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"

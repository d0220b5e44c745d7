"""An executor process, from the worker's side."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from taskmq.errors import WorkerLost
from taskmq.executors.frames import (
    HEADER,
    Answer,
    FromProcess,
    Ready,
    Request,
    Setup,
    decode_from_process,
    frame,
    frame_size,
)
from taskmq.executors.memory import MemoryGroup, resident_bytes
from taskmq.executors.telling import Reply, Told

__all__ = ["Spawned"]

_RETIRE_SECONDS: Final = 5.0
_IMPORT_SECONDS: Final = 60.0


class Spawned:
    """A process that runs one task at a time.

    Attributes:
        runs: how many it has ended.
        devices: GPUs that it was given last: what it has opened on one does not move to another.
        group: bounds its memory, once a run of it has asked for that.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._is_ready = False
        self.runs = 0
        self.devices: tuple[str, ...] = ()
        self.group: MemoryGroup | None = None

    @classmethod
    async def start(cls, target: str, setup: Setup) -> "Spawned":
        """Start one; it imports the app while this returns."""
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: _Protocol(limit=1 << 16, loop=loop),
            sys.executable,
            "-m",
            "taskmq.executors.child",
            target,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None,
            # Ctrl-C in a terminal goes to the worker, which decides about its children.
            start_new_session=True,
        )
        spawned = cls(asyncio.subprocess.Process(transport, protocol, loop))
        spawned.tell(setup)
        return spawned

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None and not self._stdin.is_closing()

    @property
    def memory(self) -> int:
        """Its resident bytes; 0 where the system does not tell."""
        return resident_bytes(self.pid)

    def tell(self, content: Any) -> None:
        """Send a frame that has no answer; nothing where it has ended."""
        if not self._stdin.is_closing():
            self._stdin.writelines(frame(content))

    async def ask(self, request: Request, hear: Callable[[Told], Awaitable[Reply | None]]) -> Answer:
        """Its answer; what it says before goes to `hear`, which gives the reply that it waits for, if it does.

        Raises:
            WorkerLost: it ended instead.
        """
        try:
            self._stdin.writelines(frame(request))
            await self._stdin.drain()
        except ConnectionError as error:
            raise await self._lost() from error
        while True:
            content = await self._next()
            if isinstance(content, Answer):
                self.runs += 1
                return content
            if not isinstance(content, Ready) and (reply := await hear(content)) is not None:
                self.tell(reply)

    async def ready(self) -> None:
        """Return once it has imported the app.

        Raises:
            WorkerLost: it ended instead, or takes longer than a minute.
        """
        if self._is_ready:
            return
        try:
            async with asyncio.timeout(_IMPORT_SECONDS):
                self._is_ready = isinstance(await self._next(), Ready)
        except TimeoutError:
            raise WorkerLost(f"the task's process has not imported the app within {_IMPORT_SECONDS:g} s") from None

    async def _next(self) -> FromProcess:
        try:
            size = frame_size(await self._stdout.readexactly(HEADER))
            return decode_from_process(await self._stdout.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise await self._lost() from error

    async def _lost(self) -> WorkerLost:
        return WorkerLost(f"the task's process ended: {_describe(await self._process.wait())}")

    async def retire(self) -> None:
        """Let it end by itself, and kill it where it does not."""
        try:
            self._stdin.close()
            async with asyncio.timeout(_RETIRE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End it and all that it has started. May be called twice."""
        self.kill_now()
        self._stdin.close()
        await self._process.wait()
        if self.group is not None:
            self.group.remove()

    def kill_now(self) -> None:
        """The same, without waiting for it to be gone."""
        _kill_group(self._process.pid)


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Ends what a process has started as soon as the process ends.

    Its forks hold its pipes open: without that, neither the end of the answers nor of the process would be seen.
    """

    _pid: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # A cast, because uvloop's transport is one without being registered as one.
        self._pid = cast("asyncio.SubprocessTransport", transport).get_pid()

    def process_exited(self) -> None:
        super().process_exited()
        if self._pid is not None:
            _kill_group(self._pid)


def _kill_group(pid: int) -> None:
    """Kill a process and what it has started; it is the leader of a session of its own."""
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

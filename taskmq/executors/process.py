"""Plain functions in processes of their own."""

import asyncio
import contextlib
import os
import pickle
import signal
import struct
import sys
from typing import Any, Final, cast

import msgspec

from taskmq.errors import TaskMQError, WorkerLost
from taskmq.execution import Execution
from taskmq.executors.coroutine import timed_out

__all__ = ["Answer", "ProcessExecutor", "Request", "Setup", "read_frame", "write_frame"]

_LENGTH: Final = struct.Struct("!I")


class Setup(msgspec.Struct, array_like=True):
    """The first frame: where the child's tasks send to, whatever its own environment and code say."""

    url: str
    state: str | None


class Request(msgspec.Struct, array_like=True):
    """One run for a child process: the message's own bytes, decoded there."""

    task: str
    args: bytes
    kwargs: bytes
    content_type: str
    job_id: str
    attempt: int
    max_attempts: int
    queue: str
    redelivered: bool
    deadline: float | None
    root: str | None
    meta: dict[str, str] | None
    tenant: str | None


class Answer(msgspec.Struct, array_like=True):
    """What became of it: a pickled value or exception. Both ends are processes of one worker."""

    is_error: bool
    pickled: bytes


class ProcessExecutor:
    """A pool of child processes, each running one task at a time.

    Args:
        target: `module:attribute` of the app, which each child imports.
        size: the most processes at a time; runs beyond it wait for one.
        url, state: where tasks that send do so; may differ from what the module says.
    """

    def __init__(self, target: str, *, size: int, url: str, state: str | None) -> None:
        self._target = target
        self._setup = Setup(url, state)
        self._slots = asyncio.Semaphore(size)
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._is_closed = False

    async def run(self, execution: Execution) -> object:
        async with self._slots:
            child = await self._free_child()
            self._busy.add(child)
            is_reusable = False
            limit = asyncio.timeout(execution.timeout)
            try:
                async with limit:
                    answer = await child.ask(_request(execution))
                is_reusable = True
            except TimeoutError as error:
                if limit.expired():
                    execution.context.mark_cancelled()
                    raise timed_out(execution) from error
                raise
            finally:
                self._busy.discard(child)
                if is_reusable and not self._is_closed:
                    self._idle.append(child)
                else:
                    await child.kill()
        return _unpacked(answer, execution)

    def ask_to_stop(self, execution: Execution) -> None:
        execution.context.mark_cancelled()

    async def aclose(self) -> None:
        """Kill every child, running or not."""
        self._is_closed = True
        children = [*self._idle, *self._busy]
        self._idle.clear()
        await asyncio.gather(*(child.kill() for child in children))

    async def _free_child(self) -> "_Child":
        # One that died while it was idle is nobody's fault.
        while self._idle and not self._is_closed:
            if (child := self._idle.pop()).is_alive:
                return child
        if not self._is_closed:
            started = await _Child.start(self._target, self._setup)
            if not self._is_closed:
                return started
            await started.kill()
        raise WorkerLost("the worker has stopped")


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Ends what a child has started as soon as the child ends.

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


class _Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout

    @classmethod
    async def start(cls, target: str, setup: Setup) -> "_Child":
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
        child = cls(asyncio.subprocess.Process(transport, protocol, loop))
        child._stdin.write(_frame(msgspec.msgpack.encode(setup)))
        return child

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None and not self._stdin.is_closing()

    async def ask(self, request: Request) -> Answer:
        """The child's answer.

        Raises:
            WorkerLost: it ended instead.
        """
        try:
            self._stdin.write(_frame(msgspec.msgpack.encode(request)))
            await self._stdin.drain()
            (size,) = _LENGTH.unpack(await self._stdout.readexactly(_LENGTH.size))
            return msgspec.msgpack.decode(await self._stdout.readexactly(size), type=Answer)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            code = await self._process.wait()
            raise WorkerLost(f"the task's process ended: {_describe(code)}") from error

    async def kill(self) -> None:
        _kill_group(self._process.pid)
        self._stdin.close()
        await self._process.wait()


def _kill_group(pid: int) -> None:
    """Kill a child and what it has started; it is the leader of a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def _request(execution: Execution) -> Request:
    envelope, context = execution.envelope, execution.context
    return Request(
        envelope.task,
        bytes(envelope.args),
        bytes(envelope.kwargs),
        execution.content_type,
        context.job_id,
        context.attempt,
        context.max_attempts,
        context.queue,
        context.redelivered,
        context.deadline.timestamp() if context.deadline else None,
        envelope.root,
        envelope.meta,
        envelope.tenant,
    )


def _unpacked(answer: Answer, execution: Execution) -> Any:
    try:
        content = pickle.loads(answer.pickled)  # noqa: S301 - written by our own child process
    except Exception as error:
        # Unpickling runs the task's own classes, which may raise anything.
        raise TaskMQError(
            f"what task {execution.context.task} returned or raised cannot cross processes: {error}"
        ) from error
    if answer.is_error:
        raise content
    return content


def read_frame(descriptor: int) -> bytes | None:
    """One frame from a pipe; None at its end. Blocks."""
    header = _read_exactly(descriptor, _LENGTH.size)
    return None if header is None else _read_exactly(descriptor, _LENGTH.unpack(header)[0])


def write_frame(descriptor: int, payload: bytes) -> None:
    """One frame to a pipe. Blocks."""
    data = memoryview(_frame(payload))
    while data:
        data = data[os.write(descriptor, data) :]


def _frame(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


def _read_exactly(descriptor: int, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)

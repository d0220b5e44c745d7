"""Executor of plain functions in separate processes."""

import asyncio
import logging
import pickle
import sys
from collections.abc import Coroutine
from typing import Any, Protocol

from taskmq.errors import MemoryExceeded, TaskMQError, WorkerLost
from taskmq.executors.coroutine import timed_out
from taskmq.executors.frames import DroppedLines, LoggedLine, Request, RunAnswer, Setup, Stop
from taskmq.executors.journal_pipe import Reply, Told, take
from taskmq.executors.memory import CHECK_INTERVAL, MemoryGroup
from taskmq.executors.spawned import Spawned
from taskmq.model.resources import MEMORY
from taskmq.model.units import size_text
from taskmq.run.context import Context
from taskmq.run.execution import Execution
from taskmq.run.log_capture import CaptureSettings


class ProcessLines(Protocol):
    """Receiver of the log lines of runs in processes."""

    def is_wanted(self, context: Context) -> bool:
        """Return whether lines of the run are captured."""
        ...

    def add(self, context: Context, level: int, logger: str, message: str) -> None:
        """Add a line of a run."""
        ...

    def drop(self, context: Context, count: int) -> None:
        """Count further lines that were dropped."""
        ...


class ProcessExecutor:
    """A pool of processes, each running one task at a time.

    Processes are reused for up to `max_tasks` runs, or until one has more than `max_memory` after a run. A run with a
    memory limit is killed when its process exceeds it; a run with GPUs sees these and no others. Granted processors
    are announced to numeric libraries (`OMP_NUM_THREADS` and its kin), and not enforced.

    Args:
        target: `module:attribute` of the app, which each process imports.
        size: maximum of processes; further runs wait for one.
        url, state, store: where tasks publish; may differ from the module's settings.
        max_tasks: runs; None for no limit.
        max_memory: resident bytes; None for no limit.
        capture: captured log lines go to `lines`; None: no capture.

    Attributes:
        lines: receiver of captured lines; None: there is none.
    """

    def __init__(
        self,
        target: str,
        *,
        size: int,
        url: str,
        state: str | None,
        store: str | None = None,
        max_tasks: int | None = None,
        max_memory: int | None = None,
        capture: CaptureSettings | None = None,
    ) -> None:
        root = logging.getLogger()
        self.lines: ProcessLines | None = None
        self._target = target
        log_level = root.level if root.handlers else None
        self._setup = Setup(url, state, log_level, store=store, capture=capture, path=[*sys.path])
        self._size = size
        self._slots = asyncio.Semaphore(size)
        self._max_tasks = max_tasks
        self._max_memory = max_memory
        self._idle: list[Spawned] = []
        self._busy: set[Spawned] = set()
        self._running: dict[int, Spawned] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._ahead: asyncio.Task[None] | None = None
        self._is_warm = False
        self._is_closed = False

    def warm(self) -> None:
        """Start a process in advance, now and after each replacement, so that the next run finds the app imported."""
        self._is_warm = True
        self._replace()

    async def run(self, execution: Execution) -> object:
        async with self._slots:
            child = await self._free_child(execution)
            self._busy.add(child)
            self._running[id(execution)] = child
            is_reusable = False
            limit: asyncio.Timeout | None = None
            try:
                # The imports do not count as the task's time.
                await child.ready()
                async with asyncio.timeout(execution.timeout) as limit:
                    answer = await self._ask(child, execution)
                execution.processor, execution.peak_memory = answer.processor, answer.peak_memory
                is_reusable = True
            except TimeoutError as error:
                if limit is not None and limit.expired():
                    execution.context.mark_cancelled()
                    raise timed_out(execution) from error
                raise
            finally:
                del self._running[id(execution)]
                self._busy.discard(child)
                if is_reusable and not self._is_closed:
                    self._put_back(child)
                else:
                    await child.kill()
                    self._replace()
        return _unpack(answer, execution)

    def ask_to_stop(self, execution: Execution) -> None:
        execution.context.mark_cancelled()
        if (child := self._running.get(id(execution))) is not None:
            child.tell(Stop(child.runs))

    def preempt(self, execution: Execution, reason: str) -> None:
        execution.context.mark_preempted(reason)
        if (child := self._running.get(id(execution))) is not None:
            child.tell(Stop(child.runs, reason))

    async def aclose(self) -> None:
        """Kill every process, running or not."""
        self._is_closed = True
        for task in self._leaving:
            task.cancel()
        if self._leaving:
            await asyncio.wait(self._leaving)
        children = [*self._idle, *self._busy]
        self._idle.clear()
        await asyncio.gather(*(child.kill() for child in children))

    async def _ask(self, child: Spawned, execution: Execution) -> RunAnswer:
        grant = execution.grant
        limit = None if grant is None else grant.amounts.get(MEMORY)
        if grant is not None and grant.devices:
            child.devices = grant.devices

        async def hear(told: Told | LoggedLine | DroppedLines) -> Reply | None:
            match told:
                case LoggedLine(level=level, source=source, text=text):
                    if self.lines is not None:
                        self.lines.add(execution.context, level, source, text)
                case DroppedLines(count=count):
                    if self.lines is not None:
                        self.lines.drop(execution.context, count)
                case _:
                    return await take(told, execution.context.open_journal())
            return None

        is_logged = self.lines is not None and self.lines.is_wanted(execution.context)
        request = _request(execution, is_logged=is_logged, number=child.runs)
        if limit is None:
            return await child.ask(request, hear)
        bounds = _Bounds(child, int(limit))
        try:
            return await child.ask(request, hear)
        except WorkerLost as error:
            if bounds.were_exceeded:
                raise MemoryExceeded(
                    f"task {execution.context.task} used more than its memory of {size_text(int(limit))}: its "
                    "process was killed",
                    limit=int(limit),
                ) from error
            raise
        finally:
            bounds.lift()

    async def _free_child(self, execution: Execution) -> Spawned:
        grant = execution.grant
        devices = () if grant is None else grant.devices
        limit = None if grant is None else grant.amounts.get(MEMORY)
        if self._ahead is not None and not self._idle:
            await asyncio.wait((self._ahead,))
        # A process that died while it was idle counts against no run.
        while self._idle and not self._is_closed:
            child = self._idle.pop()
            if not child.is_alive:
                await child.kill()
            elif child.devices not in ((), devices) or (limit and child.runs and child.memory > limit / 2):
                # It has other devices open, or leftovers of earlier runs would be visible to this one.
                await self._release(child)
            else:
                return child
        if not self._is_closed:
            started = await Spawned.start(self._target, self._setup)
            if not self._is_closed:
                return started
            await started.kill()
        raise WorkerLost("the worker has stopped")

    def _put_back(self, child: Spawned) -> None:
        is_worn = self._max_tasks is not None and child.runs >= self._max_tasks
        if is_worn or (self._max_memory is not None and child.memory > self._max_memory):
            # Before its task has started, so that a close finds it.
            self._busy.add(child)
            self._spawn(self._exchange(child))
        else:
            self._idle.append(child)

    def _replace(self) -> None:
        if self._is_warm and self._ahead is None and not self._is_closed:
            self._ahead = self._spawn(self._start_ahead())

    async def _exchange(self, child: Spawned) -> None:
        await self._release(child)
        self._replace()

    async def _release(self, child: Spawned) -> None:
        self._busy.add(child)
        try:
            await child.retire()
        finally:
            self._busy.discard(child)

    async def _start_ahead(self) -> None:
        try:
            if self._idle or not self._has_room():
                return
            started = await Spawned.start(self._target, self._setup)
            if self._has_room():
                self._idle.append(started)
            else:
                await started.kill()
        finally:
            self._ahead = None

    def _has_room(self) -> bool:
        return not self._is_closed and len(self._idle) + len(self._busy) < self._size

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task


class _Bounds:
    """A limit on a process's memory, until `lift`."""

    def __init__(self, child: Spawned, limit: int) -> None:
        self._child = child
        self._limit = limit
        self._is_seen_above = False
        self._timer: asyncio.TimerHandle | None = None
        if child.group is None:
            child.group = MemoryGroup.around(child.pid)
        try:
            if child.group is None:
                self._check()
            else:
                child.group.limit(limit)
        except OSError:
            self._check()

    @property
    def were_exceeded(self) -> bool:
        group = self._child.group
        return self._is_seen_above or (group is not None and group.has_killed)

    def lift(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._child.group is not None:
            self._child.group.lift()

    def _check(self) -> None:
        if self._child.memory > self._limit:
            self._is_seen_above = True
            self._child.kill_now()
        else:
            self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL, self._check)


def _request(execution: Execution, *, is_logged: bool, number: int) -> Request:
    envelope, context, grant = execution.envelope, execution.context, execution.grant
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
        envelope.order_key,
        execution.soft_timeout,
        execution.carry,
        None if grant is None else dict(grant.amounts),
        () if grant is None else grant.devices,
        context.fence,
        is_logged,
        number,
        envelope.store is not None,
        envelope.step_of,
        envelope.key,
        context.started,
    )


def _unpack(answer: RunAnswer, execution: Execution) -> Any:
    try:
        content = pickle.loads(answer.pickled)  # noqa: S301 - written by our own child process
    except BaseException as error:
        # Unpickling runs the task's own classes, which may raise anything.
        raise TaskMQError(
            f"the result or error of task {execution.context.task} cannot be sent between processes: {_words(error)}"
        ) from error
    if answer.is_error:
        raise content
    return content


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - the task's own class
        return type(error).__name__

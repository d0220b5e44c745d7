"""`TaskMQ`: the registry of tasks and schedules, and the way from them to a broker and a state.

An app keeps one `Session` per event loop that uses it, and one more on the portal's loop for callers without
a loop. Everything connects on first use and never across a fork.
"""

import asyncio
import atexit
import contextlib
import copy
import functools
import importlib
import math
import os
import secrets
import socket
import warnings
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, Self, TypeVar, Unpack, cast, overload

from taskmq.broker import Broadcasting, BrokerOptions, Outgoing
from taskmq.bulk import LINGER, Batches, Chunk, Conveyor, Outcomes, stream_async, stream_sync
from taskmq.cancelling import cancel_job
from taskmq.clock import Clock, SystemClock
from taskmq.codec import ReturnType
from taskmq.commands import REVOKE, Command, command_topic, encode_command
from taskmq.context import Context
from taskmq.duration import Duration, parse_duration
from taskmq.envelope import JSON, MSGPACK, encode_envelope
from taskmq.errors import DuplicateTask, InvalidOption, UnsupportedFeature
from taskmq.job import Job
from taskmq.key_options import UniqueCall
from taskmq.locks import Lock
from taskmq.middleware import Middleware, Sending, send_chain
from taskmq.options import TaskOptions
from taskmq.plugins import open_blobs, open_broker, open_state
from taskmq.portal import Portal, current_portal
from taskmq.progress import JobProgress, progress_of
from taskmq.providing import Dependencies
from taskmq.queues import Queues
from taskmq.schedule import Trigger
from taskmq.scheduling import ScheduleEntry, ScheduleOptions, Schedules, read_policy
from taskmq.scheduling.recurring import CronOptions, EveryOptions, divided
from taskmq.session import Session
from taskmq.settings import DEFAULT_URL, Settings, load_settings
from taskmq.size import Size, parse_size
from taskmq.stores import DelayStore, LeaseStore, ResultRecord, ResultStore, State
from taskmq.tasks import AsyncTask, SyncTask, Task, TaskDecorator, define
from taskmq.topology import DEFAULT_QUEUE, WorkQueue, check_queue_name
from taskmq.unique_sending import send_all, send_unique, unique_stream_async, unique_stream_sync
from taskmq.waiting import WaitingJob, due_instant, reschedule, waiting_jobs

if TYPE_CHECKING:
    from taskmq.finishing import Finishing
    from taskmq.flows import FlowDesk
    from taskmq.listening import EventStream
    from taskmq.workflow.flow import Flow

__all__ = ["ScheduleEntry", "TaskMQ"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_EMBEDDED: Final = ("local://", "memory://")
_CONTENT_TYPES: Final = {"json": JSON, "msgpack": MSGPACK}
_AnyTask = TypeVar("_AnyTask", bound=Task[..., Any])


class TaskMQ:
    """An app: tasks, their queues, and where they are sent.

    Args:
        url: the broker, `amqp://`, `amqps://`, `local://PATH` or `memory://`; default `$TASKMQ_URL` or the
            settings file, else the embedded `local://.taskmq`.
        state: shared state for results, such as `redis://`; default `$TASKMQ_STATE` or the settings file,
            else the embedded broker's own.
        name: shown at the broker.
        include: modules that define tasks with `taskmq.task`.
        middleware: the outermost first.
        default_queue: for tasks that do not name one.
        queues: those that are not to have the values of `WorkQueue(name)`.
        delay: where delayed jobs and retries wait for their time: at the `broker`, or in the `state`, where they
            can be listed, cancelled and rescheduled; jobs of one id are one job there.
        content_type: of what is sent; everything known is read.
        send_timeout: every `send` ends within it, as sent, as a typed error, or as `PublishUnknown`.
        result_ttl: how long results are kept; a task may say otherwise.
        results_at: where large results are kept, such as `file:///srv/results`; default `$TASKMQ_RESULTS_AT` or the
            settings file, else in the state. Who awaits them needs the same.
        result_inline: what is larger is kept there.
        clock: for tests.

    Raises:
        InvalidOption: a value that cannot be.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        state: str | None = None,
        name: str = "taskmq",
        include: Iterable[str | ModuleType] = (),
        middleware: Sequence[Middleware] = (),
        default_queue: str = DEFAULT_QUEUE,
        queues: Iterable[WorkQueue] = (),
        delay: Literal["broker", "state"] = "broker",
        content_type: Literal["json", "msgpack"] = "json",
        send_timeout: Duration = 10.0,
        result_ttl: Duration = "1d",
        results_at: str | None = None,
        result_inline: Size = "64K",
        clock: Clock | None = None,
    ) -> None:
        if content_type not in _CONTENT_TYPES:
            raise InvalidOption(f"content_type={content_type!r}: 'json' or 'msgpack'")
        if delay not in ("broker", "state"):
            raise InvalidOption(f"delay={delay!r}: 'broker' or 'state'")
        self.name = name
        self.delay: Literal["broker", "state"] = delay
        self.clock: Clock = clock or SystemClock()
        self.content_type: str = _CONTENT_TYPES[content_type]
        self.middleware: tuple[Middleware, ...] = tuple(middleware)
        self.default_queue: str = check_queue_name(default_queue)
        self._queues = Queues(queues)
        self.result_ttl: float = parse_duration(result_ttl, what="result_ttl").total_seconds()
        self._send_timeout = parse_duration(send_timeout, what="send_timeout").total_seconds()
        self.dependencies: Dependencies = Dependencies()
        self._result_inline = parse_size(result_inline, what="result_inline")
        self._given = Settings(url=url, state=state, results_at=results_at)
        self._settings: Settings | None = None
        self._connection_name = name
        self._tasks: dict[str, Task[..., Any]] = {}
        self.schedules: Schedules = Schedules(self)
        self._include: list[str | ModuleType] = list(include)
        self._open_send = send_chain(self.middleware)
        self._sessions: dict[int, tuple[int, asyncio.AbstractEventLoop, Session]] = {}
        self._abandoned: list[Session] = []
        self._has_warned = False

    # Settings ------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The settings in force; what was given in the code comes first.

        Raises:
            InvalidSetting: the environment or the settings file has an unknown key or an unreadable value.
        """
        if self._settings is None:
            found = load_settings(os.environ, Path.cwd())
            given = {
                key: value
                for key in ("url", "state", "results_at")
                if (value := getattr(self._given, key)) is not None
            }
            self._settings = replace(found, **given, origin={**found.origin, **dict.fromkeys(given, "code")})
        return self._settings

    def configure(self, *, url: str | None = None, state: str | None = None, name: str | None = None) -> None:
        """Override what the code says, before first use: what command-line flags do.

        Raises:
            InvalidOption: the app is in use already.
        """
        if self._sessions:
            raise InvalidOption("configure() after the app has been used: it would not change open connections")
        self._given = replace(self._given, url=url or self._given.url, state=state or self._given.state)
        self._settings = None
        self._connection_name = name or self._connection_name

    @property
    def url(self) -> str:
        """The broker's URL, with its password if it has one."""
        return self.settings.url or DEFAULT_URL

    @property
    def state_url(self) -> str | None:
        """The state's URL; None when there is none."""
        if (state := self.settings.state) is not None:
            return state
        return self.url if self.url.startswith(_EMBEDDED) else None

    # Tasks and schedules -------------------------------------------------------------------------------

    @overload
    def task(  # type: ignore[overload-overlap]
        self,
        function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]],  # pyright: ignore[reportOverlappingOverload]
        /,
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Register a function as a task of this app; see `TaskOptions` for what can be said.

        Raises:
            InvalidOption: an option or the signature is not possible; names the function.
            DuplicateTask: another function has the name.
        """
        if function is not None:
            return self._register(define(function, options))
        return functools.partial(self._define_with, options)

    def every(
        self, period: Duration, *, name: str | None = None, **options: Unpack[EveryOptions]
    ) -> Callable[[_AnyTask], _AnyTask]:
        """Emit the task below at every multiple of `period` since the epoch, UTC; needs a running beat.

        Raises:
            InvalidOption: the task cannot be called without arguments, the name is taken, or an option cannot be.
        """
        from taskmq.schedule import every

        of_trigger, policy = divided(options, EveryOptions)
        return functools.partial(self._add_schedule, name, every(period, **of_trigger), policy)

    def cron(
        self, expression: str, *, name: str | None = None, **options: Unpack[CronOptions]
    ) -> Callable[[_AnyTask], _AnyTask]:
        """Emit the task below whenever clocks show what the cron expression selects; needs a running beat.

        Raises:
            InvalidOption: the expression cannot be read or is never due; or as `every`.
        """
        from taskmq.schedule import cron

        of_trigger, policy = divided(options, CronOptions)
        return functools.partial(self._add_schedule, name, cron(expression, **of_trigger), policy)

    def include(self, *modules: str | ModuleType) -> None:
        """Bind the tasks that modules define with `taskmq.task`.

        Raises:
            DuplicateTask: a name is taken.
        """
        for module in modules:
            loaded = importlib.import_module(module) if isinstance(module, str) else module
            for value in list(vars(loaded).values()):
                if isinstance(value, Task) and not value.is_bound:
                    self._register(cast("Task[..., Any]", value))

    def override(
        self, dependency: Callable[..., Any], replacement: Callable[..., Any]
    ) -> contextlib.AbstractContextManager[None]:
        """For tests: call `replacement` wherever a task of this app depends on `dependency`, while it is entered.

        It is a provider like any other, with dependencies of its own if it wants. Several may be entered at a time;
        the last one counts. Tasks that run in processes of their own do not see it.
        """
        return self.dependencies.override(dependency, replacement)

    @property
    def tasks(self) -> dict[str, Task[..., Any]]:
        """All tasks by name, those of included modules among them."""
        while self._include:
            # Taken off the list only once it is in: a failed import is tried, and reported, again.
            self.include(self._include[-1])
            self._include.pop()
        return self._tasks

    @property
    def queues(self) -> list[WorkQueue]:
        """The queues of all tasks, and all that the app describes."""
        return [self.queue(name) for name in sorted({task.queue for task in self.tasks.values()} | {*self._queues})]

    def queue(self, name: str) -> WorkQueue:
        """The queue of that name, as the app describes it, else with the values of `WorkQueue(name)`.

        Raises:
            InvalidOption: a queue cannot be called that.
        """
        return self._queues.named(name)

    def job(self, job_id: str) -> Job[Any]:
        """A handle for a job that was sent before."""
        return Job(job_id, task="", backend=self, returns=ReturnType(Any))

    def flow(self, flow_id: str) -> "Flow[Any]":
        """A handle for a workflow that was sent before; its values are plain data."""
        from taskmq.workflow.flow import Flow

        return Flow(flow_id, backend=self.flow_desk())

    def flow_desk(self) -> "FlowDesk":
        """What workflows and their handles call."""
        from taskmq.flows import FlowDesk

        return FlowDesk(self)

    def _define_with(self, options: TaskOptions, function: Callable[..., Any]) -> Task[..., Any]:
        return self._register(define(function, options))

    def _register(self, task: Task[..., Any]) -> Task[..., Any]:
        if (known := self._tasks.get(task.name)) is not None:
            raise DuplicateTask(
                f"task {task.name!r} is defined twice: by {known.__name__} in {known.__module__} and "
                f"by {task.__name__} in {task.__module__}; give one of them a name="
            )
        if not task.plan.names_queue:
            task.with_default_queue(self.default_queue)
        self._queues.check(task)
        self._tasks[task.name] = task
        task.bind(self)
        return task

    def _add_schedule(self, name: str | None, trigger: Trigger, options: ScheduleOptions, task: _AnyTask) -> _AnyTask:
        from taskmq.schedule import for_schedule

        label = name or task.name
        rule = for_schedule(trigger, label)
        self.schedules.define(ScheduleEntry(label, task, rule, policy=read_policy(options, schedule=label)))
        return task

    # Connections ---------------------------------------------------------------------------------------

    def session(self) -> Session:
        """The session of the running loop, opened on first use.

        Raises:
            InvalidSetting: no adapter serves the URL.
        """
        loop = asyncio.get_running_loop()
        found = self._sessions.get(id(loop))
        if found is not None and found[0] == os.getpid() and found[1] is loop:
            return found[2]
        self._forget_dead_sessions()
        options = BrokerOptions(name=self._connection_name, clock=self.clock)
        state_url = self.state_url
        state = None if state_url is None else open_state(state_url, options)
        session = Session(
            open_broker(self.url, options),
            state,
            send_timeout=self._send_timeout,
            delays=self._delays(state) if self.delay == "state" else None,
            blobs=None if (place := self.settings.results_at) is None else open_blobs(place, options),
            inline=self._result_inline,
            clock=self.clock,
        )
        self._sessions[id(loop)] = (os.getpid(), loop, session)
        return session

    def _delays(self, state: State | None) -> DelayStore:
        if state is None:
            raise UnsupportedFeature(
                "delay='state' needs a state: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, or local://PATH"
            )
        return state.delays

    def _forget_dead_sessions(self) -> None:
        for key, (pid, loop, session) in list(self._sessions.items()):
            if pid != os.getpid():
                # Of the parent process: its sockets are not ours to close, so it stays referenced.
                self._abandoned.append(session)
                self._sessions.pop(key, None)
            elif loop.is_closed():
                self._sessions.pop(key, None)

    def events(self, *topics: str, buffer: int = 10_000) -> "EventStream":
        """What happens to jobs and workers: `async with app.events("job.dead.*") as events`, then `async for`.

        Args:
            topics: patterns, see `taskmq.events`; none: all events of jobs and workers.
            buffer: how many events may wait here before the oldest are dropped.
        """
        from taskmq.listening import EventStream

        return EventStream(lambda: self.session().broker, *topics, buffer=buffer)

    def results(self) -> ResultStore:
        """The result store of the running loop's session.

        Raises:
            UnsupportedFeature: the app has no state.
        """
        results = self.session().results
        if results is None:
            raise UnsupportedFeature(
                "results need a state: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, or local://PATH on one host"
            )
        return results

    def as_finished(self, jobs: Iterable[Job[R]], *, timeout: Duration | None = None) -> "Finishing[R]":
        """`async for job, outcome in app.as_finished(jobs)`: each as soon as it has ended; with `for`, too.

        Args:
            timeout: for all together; `ResultTimeout` when some have not ended by then.
        """
        from taskmq.finishing import Finishing

        return Finishing(jobs, timeout=timeout, run_sync=self.run_sync)

    def lock(self, name: str, *, timeout: Duration | None = None, lease: Duration = 30.0) -> Lock:
        """A lock over all processes, in tasks and outside of them: `async with app.lock("name")`, and `with` likewise.

        Args:
            timeout: how long to wait for it; None: as long as it takes; 0: one look.
            lease: how long it outlives this process, or its way to the state.

        Raises:
            InvalidOption: a value that cannot be.
            UnsupportedFeature: the app has no state.
        """
        if self.state_url is None:
            raise UnsupportedFeature(
                "locks need a state: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, or local://PATH on one host"
            )
        return Lock(
            name,
            leases=self._leases,
            call=functools.partial(self.run_sync, instead="async with app.lock"),
            owner=f"{socket.gethostname()}:{os.getpid()}",
            timeout=timeout,
            lease=lease,
        )

    def _leases(self) -> LeaseStore:
        state = self.session().state
        assert state is not None
        return state.leases

    async def aclose(self) -> None:
        """Close the running loop's connections; what was sent is with the broker before this returns."""
        found = self._sessions.pop(id(asyncio.get_running_loop()), None)
        if found is not None and found[0] == os.getpid():
            await found[2].aclose()

    def close(self) -> None:
        """Close the connections that `send` without a loop has opened. Using the app again opens new ones."""
        if any(pid == os.getpid() for pid, _, _ in list(self._sessions.values())):
            current_portal().call(self.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # Tests: what `taskmq.testing.Bench` calls -----------------------------------------------------------

    @contextlib.contextmanager
    def rehearsing(self, url: str, *, clock: Clock, middleware: Sequence[Middleware]) -> Generator[None, None, None]:
        """Use another broker, with its own state, and another clock while this is entered, and then what was before.

        Args:
            middleware: further ones, the innermost.
        """
        before = (self._settings, self.clock, self.middleware, self._open_send, self._sessions)
        self._settings = Settings(url=url, state=url, origin={"url": "rehearsing()", "state": "rehearsing()"})
        self.clock = clock
        self.middleware = (*self.middleware, *middleware)
        self._open_send = send_chain(self.middleware)
        self._sessions = {}
        try:
            yield
        finally:
            try:
                self.close()
            finally:
                self._settings, self.clock, self.middleware, self._open_send, self._sessions = before

    def understudy(self, tasks: Mapping[str, Task[..., Any]] | None = None) -> "TaskMQ":
        """The same app with connections of its own, and other tasks where these are given; it registers nothing."""
        twin = copy.copy(self)
        twin._sessions = {}  # noqa: SLF001 - one of us
        twin._tasks = dict(self.tasks if tasks is None else tasks)  # noqa: SLF001
        return twin

    # Sending: what tasks call --------------------------------------------------------------------------

    def send_sync(self, sending: Sending) -> None:
        """Send one; see `Call.send`."""
        self._warn_inside_loop("asend")
        with self._open_send(sending):
            if sending.unique is not None:
                self._portal().call(functools.partial(self._send_unique, sending, sending.unique))
                return
            queue, message = self._message(sending)
            self._portal().call(functools.partial(self._start, queue, message))

    async def send_async(self, sending: Sending) -> None:
        """Send one; see `Call.asend`."""
        with self._open_send(sending):
            if sending.unique is not None:
                await self._send_unique(sending, sending.unique)
                return
            await self._start(*self._message(sending))

    async def _send_unique(self, sending: Sending, call: UniqueCall) -> None:
        session = self.session()
        if session.state is None:
            raise UnsupportedFeature(
                f"task {sending.envelope.task}: unique needs a state: TaskMQ(..., state='redis://...'), "
                "$TASKMQ_STATE, or local://PATH on one host"
            )

        async def publish(unique: Sending) -> None:
            await self._start(*self._message(unique))

        await send_unique(
            sending,
            call,
            session.state.claims,
            patience=session.send_timeout,
            publish=publish,
            cancel=self._take_away if self.delay == "state" else None,
        )

    async def _take_away(self, job_id: str, reason: str) -> None:
        await self.cancel_job(job_id, reason=reason, remember="1d")

    def unique_stream_sync(self, sendings: Iterable[Sending]) -> Iterator[str]:
        """`stream_sync` for jobs of which each asks the state first."""
        self._warn_inside_loop("asend_many")
        send = functools.partial(send_all, self.send_async)
        return unique_stream_sync(sendings, lambda chunk: self._portal().call(functools.partial(send, chunk)))

    def unique_stream_async(self, sendings: Iterable[Sending] | AsyncIterable[Sending]) -> AsyncGenerator[str, None]:
        """`stream_async` for jobs of which each asks the state first."""
        return unique_stream_async(sendings, functools.partial(send_all, self.send_async))

    def stream_sync(self, sendings: Iterable[Sending], *, linger: float = LINGER) -> Iterator[str]:
        """Send many, and give the id of each once it is confirmed; see `Call.send_stream`."""
        self._warn_inside_loop("asend_many")
        portal = self._portal()

        def run(start: Callable[[], Awaitable[Outcomes | None]]) -> Outcomes | None:
            # A stream that was left in the middle may be collected there, where nothing can be waited for.
            return None if portal.is_current else portal.call(start)

        return stream_sync(sendings, self._batches(linger), Conveyor(self._publish_chunk), run)

    def stream_async(
        self, sendings: Iterable[Sending] | AsyncIterable[Sending], *, linger: float = LINGER
    ) -> AsyncGenerator[str, None]:
        """Send many, and give the id of each once it is confirmed; see `Call.asend_stream`."""
        return stream_async(sendings, self._batches(linger), Conveyor(self._publish_chunk))

    def send_many_sync(self, sendings: Iterable[Sending]) -> list[str]:
        """Send many; see `Call.send_many`."""
        return list(self.stream_sync(sendings, linger=math.inf))

    async def send_many_async(self, sendings: Iterable[Sending] | AsyncIterable[Sending]) -> list[str]:
        """Send many; see `Call.asend_many`."""
        return [job_id async for job_id in self.stream_async(sendings, linger=math.inf)]

    def _batches(self, linger: float) -> Batches:
        return Batches(open_send=self._open_send, message_of=self._message, linger=linger)

    def _start(self, queue: WorkQueue, message: Outgoing) -> "asyncio.Future[None] | Coroutine[Any, Any, None]":
        session = self.session()
        if session.is_declared(queue):
            return session.publish(message)
        return session.declare_and_publish(queue, message)

    async def _publish_chunk(self, chunk: Chunk) -> Outcomes:
        return await self.session().publish_all(*chunk)

    def _message(self, sending: Sending) -> tuple[WorkQueue, Outgoing]:
        envelope = sending.envelope
        queue = self.queue(sending.queue)
        message = Outgoing(
            queue=queue.place(priority=envelope.priority, order_key=envelope.order_key),
            body=encode_envelope(envelope, sending.content_type),
            content_type=sending.content_type,
            job_id=envelope.id,
            task=envelope.task,
            due=envelope.eta,
            enqueued=envelope.enqueued,
            root=envelope.root,
            headers=sending.headers,
            priority=queue.native_priority(envelope.priority),
        )
        return queue, message

    # Awaiting: what job handles call -------------------------------------------------------------------

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None:
        """The job's result record once it is there; None after `timeout` seconds."""
        return await self.results().wait(job_id, timeout=timeout)

    async def find_result(self, job_id: str) -> ResultRecord | None:
        """The job's result record if it is there; without its value where that is kept elsewhere."""
        self.results()
        state = self.session().state
        return None if state is None else await state.results.get(job_id)

    async def has_expired(self, job_id: str) -> bool:
        """Whether the job has ended and its result is gone; False where that is not known any more."""
        return await self.results().has_expired(job_id)

    async def find_progress(self, job_id: str) -> JobProgress | None:
        """What the job's task has told last, if it has told anything."""
        state = self.session().state
        if state is None:
            raise UnsupportedFeature(
                "progress needs a state: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, or local://PATH on one host"
            )
        record = await state.progress.find(job_id)
        return None if record is None else progress_of(record)

    # Waiting in the state: what operators and job handles call ----------------------------------------

    def list_waiting(
        self, *, limit: int = 100, task: str | None = None, queue: str | None = None
    ) -> list[WaitingJob]:
        """Up to `limit` jobs that wait for their time in the state, the earliest due first.

        Those that are on their way to their queue are among them.

        Raises:
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        call = self.alist_waiting(limit=limit, task=task, queue=queue)
        return self.run_sync(call, instead="alist_waiting")

    async def alist_waiting(
        self, *, limit: int = 100, task: str | None = None, queue: str | None = None
    ) -> list[WaitingJob]:
        """`list_waiting` for coroutines."""
        return await waiting_jobs(self._delays(self.session().state), limit=limit, task=task, queue=queue)

    async def cancel_job(self, job_id: str, *, reason: str, remember: Duration) -> bool:
        """Cancel a job wherever it is; see `Job.cancel`."""
        return await cancel_job(
            self.session(),
            job_id,
            reason=reason,
            remember=parse_duration(remember, what="remember").total_seconds(),
            result_ttl=self.result_ttl_of,
            now=self.clock.now_ms(),
            keeps_result=self._keeps_result,
            say=self.say_cancelled,
        )

    def result_ttl_of(self, task: str) -> float:
        """Seconds for which the results of a task are kept, by its name."""
        known = self.tasks.get(task)
        return self.result_ttl if known is None or known.plan.result_ttl is None else known.plan.result_ttl

    def _keeps_result(self, task: str) -> bool:
        known = self.tasks.get(task)
        return known is None or known.plan.result is not False

    def say_cancelled(self, job_id: str) -> None:
        """Have the workers that listen look at once; the others look by themselves."""
        broker = self.session().broker
        if isinstance(broker, Broadcasting):
            command = Command(id=secrets.token_hex(8), name=REVOKE, job_id=job_id)
            broker.announce(command_topic(REVOKE), encode_command(command))

    async def reschedule_waiting(self, job_id: str, *, delay: Duration | None, eta: datetime | None) -> bool:
        """Make a job that waits in the state due at another instant; False where it does not wait."""
        due = due_instant(delay=delay, eta=eta, now=self.clock.now_ms())
        return await reschedule(self._delays(self.session().state), job_id, due=due)

    def run_sync(self, call: Coroutine[Any, Any, T], *, instead: str) -> T:
        """Run a coroutine of this app from code that has no loop."""
        try:
            self._warn_inside_loop(instead)
            portal = self._portal()
        except BaseException:
            call.close()
            raise
        return portal.call(lambda: call)

    def _portal(self) -> Portal:
        portal = current_portal()
        if portal.is_current:
            raise UnsupportedFeature(
                "a blocking call inside taskmq's own I/O thread would never end: use its async twin"
            )
        _close_at_exit(self)
        return portal

    def _warn_inside_loop(self, instead: str) -> None:
        if self._has_warned:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._has_warned = True
        warnings.warn(
            f"a blocking call of taskmq inside a running event loop stops that loop while it waits: use `{instead}`",
            RuntimeWarning,
            stacklevel=4,
        )


_to_close: "weakref.WeakSet[TaskMQ]" = weakref.WeakSet()


def _close_at_exit(app: TaskMQ) -> None:
    if not _to_close:
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _to_close.add(app)


def _close_all() -> None:
    for app in list(_to_close):
        with contextlib.suppress(Exception):
            app.close()

"""`TaskMQ`: the registry of tasks and schedules, and the way from them to a broker and a state.

An app keeps one `Session` per event loop that uses it, and one more on the portal's loop for callers without
a loop. Everything connects on first use and never across a fork.
"""

import asyncio
import atexit
import contextlib
import functools
import importlib
import os
import secrets
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, Self, TypeVar, Unpack, cast, overload

from taskmq.broker import Broadcasting, BrokerOptions, Outgoing
from taskmq.bulk import Batches
from taskmq.cancelling import cancel_job
from taskmq.clock import Clock, SystemClock
from taskmq.codec import ReturnType
from taskmq.commands import REVOKE, Command, command_topic, encode_command
from taskmq.context import Context
from taskmq.duration import Duration, parse_duration
from taskmq.envelope import JSON, MSGPACK, encode_envelope
from taskmq.errors import DuplicateTask, InvalidArguments, InvalidOption, SendError, UnsupportedFeature
from taskmq.job import Job
from taskmq.middleware import Middleware, Sending, send_chain
from taskmq.options import TaskOptions
from taskmq.plugins import open_broker, open_state
from taskmq.portal import Portal, current_portal
from taskmq.progress import JobProgress, progress_of
from taskmq.providing import Dependencies
from taskmq.queues import Queues
from taskmq.schedule import Every, Trigger
from taskmq.session import Session
from taskmq.settings import DEFAULT_URL, Settings, load_settings
from taskmq.stores import DelayStore, ResultRecord, ResultStore, State
from taskmq.tasks import AsyncTask, SyncTask, Task, TaskDecorator, define
from taskmq.topology import DEFAULT_QUEUE, WorkQueue, check_queue_name
from taskmq.waiting import WaitingJob, due_instant, reschedule, waiting_jobs

if TYPE_CHECKING:
    from taskmq.listening import EventStream

__all__ = ["ScheduleEntry", "TaskMQ"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_EMBEDDED: Final = ("local://", "memory://")
_CONTENT_TYPES: Final = {"json": JSON, "msgpack": MSGPACK}
_AnyTask = TypeVar("_AnyTask", bound=Task[..., Any])


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """A recurring call of one task without arguments."""

    name: str
    task: Task[..., Any]
    trigger: Trigger


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
        result_ttl: how long results are kept.
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
        self._given = Settings(url=url, state=state)
        self._settings: Settings | None = None
        self._connection_name = name
        self._tasks: dict[str, Task[..., Any]] = {}
        self._schedules: dict[str, ScheduleEntry] = {}
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
            given = {key: value for key in ("url", "state") if (value := getattr(self._given, key)) is not None}
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

    def every(self, period: Duration, *, name: str | None = None) -> Callable[[_AnyTask], _AnyTask]:
        """Emit the task below at every multiple of `period` since the epoch, UTC; needs a running beat.

        Raises:
            InvalidOption: the task cannot be called without arguments, or the name is taken.
        """
        return functools.partial(self._add_schedule, name, Every.parse(period))

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
    def schedules(self) -> dict[str, ScheduleEntry]:
        """All schedules by name, those of included modules among them."""
        _ = self.tasks
        return self._schedules

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

    def _add_schedule(self, name: str | None, trigger: Trigger, task: _AnyTask) -> _AnyTask:
        label = name or task.name
        if label in self._schedules:
            raise InvalidOption(f"schedule {label!r} is defined twice; give one of them a name=")
        try:
            task.signature.encode((), {}, self.content_type)
            if task.order_key is not None:
                task.order_key.of((), {})
        except InvalidArguments as error:
            raise InvalidOption(f"schedule {label!r}: the task must run without arguments: {error}") from error
        self._schedules[label] = ScheduleEntry(label, task, trigger)
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
        state = self.session().state
        if state is None:
            raise UnsupportedFeature(
                "results need a state: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, or local://PATH on one host"
            )
        return state.results

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

    # Sending: what tasks call --------------------------------------------------------------------------

    def send_sync(self, sending: Sending) -> None:
        """Send one; see `Call.send`."""
        self._warn_inside_loop("asend")
        with self._open_send(sending):
            queue, message = self._message(sending)
            self._portal().call(functools.partial(self._start, queue, message))

    async def send_async(self, sending: Sending) -> None:
        """Send one; see `Call.asend`."""
        with self._open_send(sending):
            await self._start(*self._message(sending))

    def send_many_sync(self, sendings: Iterable[Sending]) -> list[str]:
        """Send many; see `Call.send_many`."""
        self._warn_inside_loop("asend_many")
        with Batches(sendings, open_send=self._open_send, message_of=self._message) as batches:
            for queues, messages in batches:
                batches.settle(self._portal().call(functools.partial(self._publish_all, queues, messages)))
        return batches.finish()

    async def send_many_async(self, sendings: Iterable[Sending]) -> list[str]:
        """Send many; see `Call.asend_many`."""
        with Batches(sendings, open_send=self._open_send, message_of=self._message) as batches:
            for queues, messages in batches:
                batches.settle(await self._publish_all(queues, messages))
        return batches.finish()

    def _start(self, queue: WorkQueue, message: Outgoing) -> "asyncio.Future[None] | Coroutine[Any, Any, None]":
        session = self.session()
        if session.is_declared(queue):
            return session.publish(message)
        return session.declare_and_publish(queue, message)

    async def _publish_all(self, queues: Sequence[WorkQueue], messages: Sequence[Outgoing]) -> list[SendError | None]:
        return await self.session().publish_all(queues, messages)

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
        """The job's result record if it is there."""
        return await self.results().get(job_id)

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
            result_ttl=self.result_ttl,
            now=self.clock.now_ms(),
            keeps_result=self._keeps_result,
            say=self._say_cancelled,
        )

    def _keeps_result(self, task: str) -> bool:
        known = self.tasks.get(task)
        return known is None or known.plan.result is not False

    def _say_cancelled(self, job_id: str) -> None:
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

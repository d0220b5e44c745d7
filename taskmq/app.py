"""`TaskMQ`: the registry of tasks and schedules, connected to a broker and a state.

It consists of `Tasks`, the `Sessions` with broker and state, a `Producer` that sends, and `Jobs`, which submits to
the store and looks up submitted and sent jobs. The class of `app.x` is in a module `x`.
"""

import functools
import os
import socket
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from taskmq.client.producer import AppServices, Producer
from taskmq.client.queues import Queues
from taskmq.client.sessions import Sessions
from taskmq.contracts.stores import member_key
from taskmq.errors import InvalidOption
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Middleware
from taskmq.model.clock import Clock
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.model.keys import tenant_key
from taskmq.model.topology import DEFAULT_QUEUE, WorkQueue
from taskmq.model.units import Duration, Size
from taskmq.model.values.celery_words import CeleryHints
from taskmq.model.values.return_type import ReturnType
from taskmq.options.task_options import TaskOptions
from taskmq.run.context import Context
from taskmq.run.locks import Lock
from taskmq.run.member import Member, check_group
from taskmq.schedules import ScheduleEntry, ScheduleOptions, Schedules, read_policy
from taskmq.schedules.decorators import CronOptions, EveryOptions, split_options
from taskmq.schedules.target import read_target
from taskmq.schedules.triggers import Trigger
from taskmq.tasks.definition import TaskDecorator, define
from taskmq.tasks.task import AsyncTask, SyncTask, Task
from taskmq.tasks.tasks import Tasks

if TYPE_CHECKING:
    from taskmq.events.stream import EventStream
    from taskmq.reactions import Expression, Reactions
    from taskmq.stored_jobs import Definitions, Jobs, Pools
    from taskmq.workflow.named_workflow import NamedWorkflow
    from taskmq.workflow.parts import Workflow
    from taskmq.workflow.runs.runs import Runs
    from taskmq.workflow.workflows import Workflows

P = ParamSpec("P")
R = TypeVar("R")

_CONTENT_TYPES: Final = {"json": JSON, "msgpack": MSGPACK}
_AnyTask = TypeVar("_AnyTask", bound=Task[..., Any])
_Startable = TypeVar("_Startable", bound="Task[..., Any] | NamedWorkflow[..., Any] | Workflow[Any]")


class TaskMQ(CeleryHints):
    """An app: its tasks, their queues, and the broker they are sent to.

    Args:
        url: the broker: `amqp://`, `amqps://`, `local://PATH` or `memory://NAME`. Default: `$TASKMQ_URL` or the
            settings file, otherwise the embedded broker `local://.taskmq`.
        state: the shared state of workers and callers, such as `redis://host/0`: results, keys, limits, schedules,
            workflows. Default: `$TASKMQ_STATE` or the settings file, otherwise the embedded broker's own; none with
            RabbitMQ.
        store: the job store, such as `postgresql://host/db` or `sqlite:///PATH`, for jobs that are submitted, listed
            and changed. Default: `$TASKMQ_STORE` or the settings file, otherwise none.
        store_replica: a streaming standby of a PostgreSQL job store, such as `postgresql://standby/db`, for lists,
            counts and history. Default: `$TASKMQ_STORE_REPLICA` or the settings file, otherwise none.
        store_replica_max_age: how far the standby may be behind before the job store is read instead. Default:
            `$TASKMQ_STORE_REPLICA_MAX_AGE` or the settings file, otherwise 30 seconds.
        name: the app's name, shown in the broker; it also identifies the app's schedules.
        version: the version of the app's code, such as `2026.11.30-1`; processes announce it. Default:
            `$TASKMQ_APP_VERSION` or the settings file, otherwise none.
        include: modules that define tasks, imported on the first use of `app.tasks`, such as when a worker starts.
        middleware: code around sending and running, outermost first; docs/events.md has an example.
        default_queue: the queue of tasks without one.
        queues: queues that differ from `WorkQueue(name)`.
        delay: where delayed jobs and retries wait: in the `broker`, or in the `state`, where they can be listed,
            cancelled and rescheduled.
        content_type: the encoding of sent messages. Both are always accepted.
        send_timeout: the time limit of each `send`, which ends with a confirm or a typed error.
        result_ttl: how long results are kept; tasks can override it.
        results_at: the store for results above `result_inline` and arguments above `args_inline`, such as
            `file:///srv/results` or `s3://bucket`. Workers and callers need the same value. Default:
            `$TASKMQ_RESULTS_AT` or the settings file, otherwise the state.
        result_inline: results up to this size stay in the state.
        args_inline: arguments up to this encoded size travel in their message; larger ones are stored in
            `results_at`. Default: no limit.
        args_ttl: how long large arguments are kept after their job is due. It must exceed the time of all retries.
        clock: a custom clock, for tests. Default: the system clock.

    Raises:
        InvalidOption: a value is invalid.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        state: str | None = None,
        store: str | None = None,
        store_replica: str | None = None,
        store_replica_max_age: Duration | None = None,
        name: str = "taskmq",
        version: str | None = None,
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
        args_inline: Size | None = None,
        args_ttl: Duration = "7d",
        clock: Clock | None = None,
    ) -> None:
        if content_type not in _CONTENT_TYPES:
            raise InvalidOption(f"content_type={content_type!r}: must be 'json' or 'msgpack'")
        self.name: str = name
        self.sessions: Sessions = Sessions(
            url=url,
            state=state,
            store=store,
            store_replica=store_replica,
            store_replica_max_age=store_replica_max_age,
            results_at=results_at,
            app_version=version,
            result_ttl=result_ttl,
            result_inline=result_inline,
            args_inline=args_inline,
            args_ttl=args_ttl,
            name=name,
            delay=delay,
            send_timeout=send_timeout,
            clock=clock,
        )
        described = Queues(queues)
        self.tasks: Tasks = Tasks(described, default_queue=default_queue, include=include)
        self.producer: Producer = Producer(
            self.sessions,
            self._find_jobs,
            described,
            content_type=_CONTENT_TYPES[content_type],
            middleware=middleware,
        )
        self._services: AppServices = AppServices(self.producer, self._find_jobs, self.tasks.dependencies)
        self.tasks.serve(self._services)
        self.schedules: Schedules = Schedules(name, self.tasks, self.producer)

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
        """Register a function as a task of this app; see `TaskOptions` for the options.

        Raises:
            InvalidOption: an option or the signature is invalid; the message names the function.
            DuplicateTask: another function has the name.
        """
        if function is None:
            return functools.partial(self._define_with, options)
        return self._define_with(options, function)

    @overload
    def workflow(self, function: "Callable[P, Workflow[R]]", /) -> "NamedWorkflow[P, R]": ...
    @overload
    def workflow(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        timeout: Duration | None = None,
        max_active_runs: int | None = None,
    ) -> "Callable[[Callable[P, Workflow[R]]], NamedWorkflow[P, R]]": ...
    def workflow(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        timeout: Duration | None = None,
        max_active_runs: int | None = None,
    ) -> Any:
        """Define a workflow whose graph a function builds from the parameters of a run.

        A job calls the function, so its task is registered with the app, too.

        Args:
            name: default: the function's name.
            queue: queue of the job that builds the graph. Default: the app's default queue.
            timeout: maximum duration of a run, which is cancelled then, and fails. Default: no limit.
            max_active_runs: maximum of runs at a time, per tenant; further ones are queued. Default: no limit.

        Raises:
            InvalidOption: the name is taken, an option is invalid, or a parameter cannot be passed by name.
            DuplicateTask: another function has the task's name.
        """
        define_it = functools.partial(
            self._define_workflow, name, queue, {"timeout": timeout, "max_active_runs": max_active_runs}
        )
        return define_it if function is None else define_it(function)

    def every(
        self, period: Duration, *, name: str | None = None, **options: Unpack[EveryOptions]
    ) -> Callable[[_Startable], _Startable]:
        """Start the task or workflow below at every multiple of `period` since the epoch, UTC.

        Tasks need a running beat, or with a job store a scheduler; workflows need the scheduler.

        Raises:
            InvalidOption: the task or workflow requires arguments, the name is in use, or an option is invalid.
        """
        from taskmq.schedules.triggers import every

        of_trigger, policy = split_options(options, EveryOptions)
        return functools.partial(self._add_schedule, name, every(period, **of_trigger), policy)

    def cron(
        self, expression: str, *, name: str | None = None, **options: Unpack[CronOptions]
    ) -> Callable[[_Startable], _Startable]:
        """Start the task or workflow below at the times of a cron expression; see `every`.

        Raises:
            InvalidOption: the expression is malformed or never due; or as for `every`.
        """
        from taskmq.schedules.triggers import cron

        of_trigger, policy = split_options(options, CronOptions)
        return functools.partial(self._add_schedule, name, cron(expression, **of_trigger), policy)

    def on(
        self,
        condition: "Expression",
        *,
        debounce: Duration = 0,
        limit: Duration | None = None,
        at_limit: Literal["drop", "call"] = "drop",
        name: str | None = None,
    ) -> Callable[[_AnyTask], _AnyTask]:
        """Call the task below after events that match a condition.

        The task receives the event of a single condition, or the list of events of several. Workers detect the end of
        jobs; all other events need a running beat.

        Args:
            condition: `job`, `file`, `message`, `amqp`, `all_of`, `any_of` or `at_least` of `taskmq.reactions`.
            debounce: wait until no more events arrive for this time; the task receives each condition's last event.
            limit: maximum time between the first event and the call. Default: unlimited.
            at_limit: `drop` forgets the events when the limit is over; `call` calls the task with those that came.
            name: the reaction's name. Default: the task's.

        Raises:
            InvalidOption: the task cannot take the event or would trigger itself endlessly, the name is in use, or an
                option is invalid.
        """
        return functools.partial(
            self._add_reaction, condition, name=name, debounce=debounce, limit=limit, at_limit=at_limit
        )

    def include(self, *modules: str | ModuleType) -> None:
        """Bind the tasks that modules define with `taskmq.task`.

        Raises:
            DuplicateTask: a name is in use.
        """
        for module in modules:
            self.tasks.include(module)

    @functools.cached_property
    def jobs(self) -> "Jobs":
        """The jobs of this app, in the store and at the broker."""
        from taskmq.stored_jobs import Jobs

        jobs = Jobs(self.sessions, tasks=self.tasks)
        jobs.use_producer(self.producer)
        return jobs

    @property
    def definitions(self) -> "Definitions":
        """The job definitions in the store."""
        return self.jobs.definitions

    @functools.cached_property
    def pools(self) -> "Pools":
        """The pools of tenants, queue policies and quotas in the store."""
        from taskmq.stored_jobs import Pools

        return Pools(self.sessions)

    @functools.cached_property
    def reactions(self) -> "Reactions":
        """The reactions of this app by name."""
        from taskmq.reactions import Reactions

        return Reactions(self.name, self.tasks, self.producer)

    @functools.cached_property
    def runs(self) -> "Runs":
        """The runs of workflows in the store."""
        from taskmq.workflow.runs.runs import Runs

        return Runs(self.sessions)

    @functools.cached_property
    def workflows(self) -> "Workflows":
        """The named workflows of this app by name."""
        from taskmq.workflow.workflows import Workflows

        return Workflows(lambda: len(self.tasks))

    def job(self, job_id: str, *, tenant: str | None = None) -> Job[Any]:
        """Return a handle for a job by its id, without checking that it exists.

        Args:
            tenant: the job's tenant, if `job_id` is the sender's id; omit it with the `id` of a handle.
        """
        return Job(tenant_key(tenant, job_id), task="", jobs=self._find_jobs, returns=ReturnType(Any), was_sent=False)

    def _find_jobs(self) -> "Jobs":
        return self.jobs

    def _define_with(self, options: TaskOptions, function: Callable[..., Any]) -> Task[..., Any]:
        task = define(function, options)
        self.tasks.register(task)
        return task

    def _define_workflow(
        self, name: str | None, queue: str | None, limits: dict[str, Any], function: Callable[..., Any]
    ) -> "NamedWorkflow[..., Any]":
        from taskmq.workflow.named_workflow import NamedWorkflow, builder_of

        label = name or function.__name__
        task = self._define_with({} if queue is None else {"queue": queue}, builder_of(function, label))
        workflow: NamedWorkflow[..., Any] = NamedWorkflow(label, function, task, **limits)
        self.workflows.define(workflow)
        return workflow

    def _add_schedule(
        self, name: str | None, trigger: Trigger, options: ScheduleOptions, started: _Startable
    ) -> _Startable:
        from taskmq.schedules.triggers import for_schedule

        label = name or getattr(started, "name", "")
        if not label:
            raise InvalidOption(f"schedule of {started!r}: give it a name=")
        rule, policy = for_schedule(trigger, label), read_policy(options, schedule=label)
        target = read_target(started, args=(), kwargs={}, schedule=label)
        self.schedules.define(
            ScheduleEntry(label, target.task, rule, target.args, target.kwargs, policy, workflow=target.workflow)
        )
        return started

    def _add_reaction(
        self,
        condition: "Expression",
        task: _AnyTask,
        *,
        name: str | None,
        debounce: Duration,
        limit: Duration | None,
        at_limit: Literal["drop", "call"],
    ) -> _AnyTask:
        self.reactions.define(task, condition, name=name, debounce=debounce, limit=limit, at_limit=at_limit)
        return task

    def events(self, *topics: str, buffer: int = 10_000) -> "EventStream":
        """Return a stream of job and worker events: `async with app.events("job.dead.*") as events`, then `async
        for`.

        Args:
            topics: patterns, see `taskmq.events`; none for all events of jobs and workers.
            buffer: the number of buffered events beyond which the oldest are dropped.
        """
        from taskmq.events.stream import EventStream

        return EventStream(lambda: self.sessions.current().broker, *topics, buffer=buffer)

    def lock(self, name: str, *, timeout: Duration | None = None, lease: Duration = 30.0) -> Lock:
        """Return a lock shared by all processes, for tasks and other code: `async with app.lock("name")`, or `with`.

        Args:
            timeout: how long to wait for it; None for no limit; 0 for a single attempt.
            lease: how long it is held after this process dies or loses its connection.

        Raises:
            InvalidOption: a value is invalid.
            UnsupportedFeature: the app has neither a state nor a store.
        """
        self.sessions.check_coordinator("locks need")
        return self._lock(name, None, timeout=timeout, lease=lease)

    def member(
        self, group: str, name: str | None = None, *, timeout: Duration | None = None, lease: Duration = 10.0
    ) -> Member:
        """Return a membership in a group of processes: `async with app.member("importers") as group`.

        Args:
            name: the member's name, of 1 to 255 bytes, unique at any time. Default: a new one of this host and
                process.
            timeout: how long to wait for another member of this name to leave; None for no limit; 0 for a single
                attempt.
            lease: how long others see the member after its process dies or loses its connection.

        Raises:
            InvalidOption: a value is invalid.
            UnsupportedFeature: the app has neither a state nor a store.
        """
        self.sessions.check_coordinator("groups of members need")
        member = f"{_here()}:{uuid.uuid4().hex[:8]}" if name is None else name
        held = self._lock(member, member_key(check_group(group), member), timeout=timeout, lease=lease)
        return Member(group, member, coordinator=self.sessions.coordinator, lease=held)

    def _lock(self, name: str, key: str | None, *, timeout: Duration | None, lease: Duration) -> Lock:
        return Lock(
            name,
            leases=self.sessions.coordinator,
            call=functools.partial(self.sessions.run_sync, instead="async with app.lock"),
            owner=_here(),
            key=key,
            timeout=timeout,
            lease=lease,
            monotonic=self.sessions.clock.monotonic,
        )

    def close(self) -> None:
        """Close the connections opened by sends without a loop. Using the app again opens new ones."""
        self.sessions.close()

    async def aclose(self) -> None:
        """Close the running loop's connections. Sent messages are with the broker before this returns."""
        await self.sessions.aclose()

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


def _here() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"

"""Tasks: functions that can be called here, or sent to a worker.

A `Call`, which is a task with options, builds the message; the producer of the task's app sends it.
"""

import math
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from msgspec.structs import replace

from taskmq.client.producer import AppServices, Producer
from taskmq.errors import InvalidArguments, InvalidOption, PartlySent
from taskmq.injection.plan import is_dependency, plan_dependencies
from taskmq.injection.resolve import Dependencies, inject_async, inject_sync
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.codec import Signature
from taskmq.model.envelope import JSON, new_job_ids
from taskmq.model.keys import tenant_key, unique_key
from taskmq.model.units import Duration
from taskmq.model.values.celery_words import CeleryHints
from taskmq.model.values.return_type import ReturnType
from taskmq.options.keys import ArgumentKey, OrderKey
from taskmq.options.limits import TaskLimit, bind_limits
from taskmq.options.plans import CallPlan, TaskPlan
from taskmq.options.uniqueness import UniqueCall
from taskmq.run.context import Context, current_context
from taskmq.tasks.envelope import envelope_of
from taskmq.tasks.job_options import JobOptions, JobPlan, check_sendable, plan_job, refused_by_broker, submission_of

if TYPE_CHECKING:
    from taskmq.tasks.call_shapes import TakesFirst, TakesOne
    from taskmq.workflow.parts import Group, OpenStep, Step
    from taskmq.workflow.step_call import StepCall

P = ParamSpec("P")
Q = ParamSpec("Q")
A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

Arguments = Sequence[Any] | Mapping[str, Any]
"""Arguments of one of many calls: positional ones, or all by name."""


_NO_APP: Final = Dependencies()


class Call(CeleryHints, Generic[P, R_co]):
    """A task with options for its calls."""

    def __init__(self, task: "Task[P, R_co]", plan: CallPlan) -> None:
        self._task = task
        self._plan = plan

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Send one call; return its handle once the broker has confirmed it.

        Raises:
            InvalidArguments, EncodeError: the arguments do not fit; nothing was sent.
            SendError: one of its kinds, within the app's send timeout; `DuplicateJob` if its unique key is taken.
            StoreUnavailable, JobConflict: for a call that goes to the store, see `app.jobs.submit`.
        """
        sending = self._sending(args, kwargs)
        self._task.services.producer.send_sync(sending)
        return self._send_one(sending)

    async def asend(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Do what `send` does, without blocking the event loop."""
        sending = self._sending(args, kwargs)
        task = self._task
        services = task.services
        await services.producer.start_send(sending)
        if sending.submission is not None:
            return self._send_one(sending)
        keeps_result = task.plan.result is not False
        return Job(
            sending.envelope.id, task=task.name, jobs=services.jobs, returns=task.returns, keeps_result=keeps_result
        )

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Submit one call to the job store, like `app.jobs.submit`; the job is durable when this returns.

        With `connection=` it is durable once that transaction commits. The job goes to the store whatever the task's
        lane is.

        Raises:
            InvalidArguments, EncodeError, InvalidOption: nothing was stored.
            StoreUnavailable, JobConflict, DuplicateJob, QuotaExceeded, TooLarge: see `app.jobs.submit`.
        """
        call = self.asubmit(*args, **kwargs)
        return self._task.services.producer.sessions.run_sync(call, instead="asubmit")

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Do what `submit` does, without blocking the event loop."""
        sending = self._sending(args, kwargs, is_submitted=True)
        await self._task.services.producer.send_async(sending)
        return self._send_one(sending)

    def send_many(self, calls: Iterable[Arguments]) -> list[Job[R_co]]:
        """Send many calls, pipelined; return their handles once all are confirmed.

        Args:
            calls: one sequence of positional arguments per call, or one mapping of all arguments by name; read
                lazily, in chunks. Only one chunk and the returned handles are in memory.

        Raises:
            InvalidArguments, EncodeError: a call's arguments do not fit; earlier chunks were sent.
            PartlySent: some were not confirmed; the error names them, and the ids of the others.
        """
        jobs: list[Job[R_co]] = []
        try:
            jobs.extend(self._jobs_of(self._stream(calls, linger=math.inf)))
        except PartlySent as error:
            error.job_ids = [job.id for job in jobs]
            raise
        return jobs

    async def asend_many(self, calls: Iterable[Arguments] | AsyncIterable[Arguments]) -> list[Job[R_co]]:
        """Do what `send_many` does, without blocking the event loop; `calls` may be asynchronous."""
        jobs: list[Job[R_co]] = []
        try:
            async with aclosing(self._achunks(calls)) as chunks:
                async for job_ids in chunks:
                    jobs += self._jobs_of(job_ids)
        except PartlySent as error:
            error.job_ids = [job.id for job in jobs]
            raise
        return jobs

    def send_stream(self, calls: Iterable[Arguments]) -> Iterator[Job[R_co]]:
        """Send an unlimited number of calls, and yield the handle of each once it is confirmed, without storing it.

        Calls are sent in chunks: after a thousand calls, or with the first call after a tenth of a second. A caller
        that stops iterating has sent up to two chunks more than it received handles for.

        Raises as `send_many` does.
        """
        # A separate generator, so that mistakes are raised by the call and not by the first `next`.
        return map(self.handle, self._stream(calls))

    def asend_stream(self, calls: Iterable[Arguments] | AsyncIterable[Arguments]) -> AsyncGenerator[Job[R_co], None]:
        """Do what `send_stream` does, without blocking the event loop; `calls` may be asynchronous."""
        return self._jobs(self._astream(calls))

    def sending(self, *args: P.args, **kwargs: P.kwargs) -> Sending:
        """Build the message without sending it, for callers that publish it repeatedly under their own ids."""
        return self._sending(args, kwargs)

    def submission(self, *args: P.args, **kwargs: P.kwargs) -> Sending:
        """Build the message of a stored job: in JSON, identified by its id alone.

        Raises:
            InvalidArguments, EncodeError: the arguments do not fit.
        """
        return self._sending(args, kwargs, is_submitted=True)

    def submissions(self, calls: Iterable[Arguments]) -> Iterator[Sending]:
        """Build the messages of many stored jobs, like `submission`, with ids in the order of the calls."""
        calls = list(calls)
        now = self.producer.sessions.clock.now_ms()
        for call, job_id in zip(calls, new_job_ids(now, os.urandom(10 * len(calls))), strict=True):
            yield self._sending(*self._arguments_of(call), is_submitted=True, job_id=job_id)

    def with_options(self, options: Mapping[str, Any]) -> "Call[P, R_co]":
        """Return the same call with these options, which override its own.

        Raises:
            InvalidOption: an option is unknown or has an invalid value.
        """
        if not options:
            return self
        return Call(self._task, plan_job(self._plan, options, task=self._task.name))

    @property
    def task_name(self) -> str:
        """Name of the task in messages."""
        return self._task.name

    @property
    def producer(self) -> Producer:
        """Producer of the task's app."""
        return self._task.services.producer

    def open_names(self, count: int) -> frozenset[str]:
        """Return the parameters that can be given by name besides this many positional arguments."""
        positional, named, _, _ = self._task.signature.parameters
        return frozenset(each.name for each in (*positional[count:], *named) if each.by_name)

    def handle(self, job_id: str) -> Job[R_co]:
        """Return the handle of a job of the task."""
        task = self._task
        keeps_result = task.plan.result is not False
        return Job(job_id, task=task.name, jobs=task.services.jobs, returns=task.returns, keeps_result=keeps_result)

    @overload
    def s(self, *args: P.args, **kwargs: P.kwargs) -> "Step[R_co]": ...  # type: ignore[overload-overlap]
    @overload
    def s(self: "TakesFirst[A, Q, R]", *args: Q.args, **kwargs: Q.kwargs) -> "OpenStep[A, R]": ...
    def s(self, *args: Any, **kwargs: Any) -> Any:
        """Create a step of a workflow that gets its first argument from the step before it.

        A step with all its arguments can also be the first one, or be sent alone.
        """
        from taskmq.workflow.parts import OpenStep, Step

        call = self._step_call(args, kwargs, is_fed=True)
        is_whole = self._task.signature.accepts(len(args), kwargs)
        return Step[Any](call) if is_whole else OpenStep[Any, Any](call)

    def si(self, *args: P.args, **kwargs: P.kwargs) -> "Step[R_co]":
        """Create a step of a workflow that has all its arguments and only waits for the step before it."""
        from taskmq.workflow.parts import Step

        return Step(self._step_call(args, kwargs, is_fed=False))

    def map(self: "TakesOne[A, R]", items: Iterable[A]) -> "Group[R]":
        """Create a group of concurrent calls, one for each item; as a workflow, its value is the list of theirs."""
        return cast("Call[..., R]", self).starmap((item,) for item in items)

    def starmap(self: "Call[..., R]", calls: Iterable[Sequence[Any]]) -> "Group[R]":
        """Create a group of concurrent calls, one for each sequence of arguments."""
        from taskmq.workflow.parts import Group, Step

        members = tuple(Step[R](self._step_call(tuple(call), {}, is_fed=False)) for call in calls)
        return Group(members, task=self._task)

    def chunks(self: "Call[Concatenate[Any, ...], R]", items: Iterable[Any], size: int) -> "Group[R]":
        """Create a group of concurrent calls of a task that takes a list, one for every `size` items."""
        if size < 1:
            raise InvalidOption(f"task {self._task.name}: chunks of {size}: must be at least 1")
        rest = iter(items)
        return self.starmap((piece,) for piece in iter(lambda: list(islice(rest, size)), []))

    def _step_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_fed: bool) -> "StepCall":
        from taskmq.workflow.step_call import StepCall

        if isinstance(self._plan, JobPlan):
            raise refused_by_broker(self._task.name)
        plan = None if self._task is self else self._plan
        return StepCall(self._task, plan, args, kwargs, {}, is_fed=is_fed)

    @property
    def _goes_one_by_one(self) -> bool:
        return self._task.plan.unique is not None or self._plan.lane == "store"

    @property
    def call_plan(self) -> CallPlan:
        """Validated options of its calls."""
        return self._plan

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Alias of `send`, as in Celery."""
        return self.send(*args, **kwargs)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        countdown: Duration | None = None,
        eta: datetime | None = None,
        expires: Duration | datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        task_id: str | None = None,
    ) -> Job[R_co]:
        """Alias of `options(...).send(...)`, as in Celery."""
        given = {"delay": countdown, "eta": eta, "expires": expires, "priority": priority, "queue": queue}
        given["job_id"] = task_id
        call = self.with_options({key: value for key, value in given.items() if value is not None})
        return cast("Call[..., R_co]", call).send(*args, **(kwargs or {}))

    def _stream(self, calls: Iterable[Arguments], *, linger: float | None = None) -> Iterator[str]:
        sendings, producer = self._sendings(calls), self._task.services.producer
        if self._goes_one_by_one:
            return producer.stream_one_by_one_sync(sendings)
        return producer.stream_sync(sendings) if linger is None else producer.stream_sync(sendings, linger=linger)

    def _astream(
        self, calls: Iterable[Arguments] | AsyncIterable[Arguments], *, linger: float | None = None
    ) -> AsyncGenerator[str, None]:
        sendings, producer = self._any_sendings(calls), self._task.services.producer
        if self._goes_one_by_one:
            return producer.stream_one_by_one_async(sendings)
        return producer.stream_async(sendings) if linger is None else producer.stream_async(sendings, linger=linger)

    def _achunks(self, calls: Iterable[Arguments] | AsyncIterable[Arguments]) -> AsyncGenerator[list[str], None]:
        if self._goes_one_by_one:
            return _one_by_one(self._astream(calls))
        return self._task.services.producer.chunks_async(self._any_sendings(calls))

    def _sendings(self, calls: Iterable[Arguments]) -> Iterator[Sending]:
        self._check_many()
        return map(self._sending_of, calls)

    def _any_sendings(
        self, calls: Iterable[Arguments] | AsyncIterable[Arguments]
    ) -> Iterator[Sending] | AsyncIterator[Sending]:
        return self._asendings(calls) if isinstance(calls, AsyncIterable) else self._sendings(calls)

    def _asendings(self, calls: AsyncIterable[Arguments]) -> AsyncIterator[Sending]:
        self._check_many()
        return (self._sending_of(call) async for call in calls)

    async def _jobs(self, job_ids: AsyncGenerator[str, None]) -> AsyncGenerator[Job[R_co], None]:
        async with aclosing(job_ids):
            async for job_id in job_ids:
                yield self.handle(job_id)

    def _check_many(self) -> None:
        if self._plan.job_id is not None:
            raise InvalidOption(f"task {self._task.name}: job_id names one call, not many")

    def _sending_of(self, call: Arguments) -> Sending:
        return self._sending(*self._arguments_of(call))

    def _arguments_of(self, call: Arguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if isinstance(call, tuple):
            return call, {}
        if isinstance(call, Mapping):
            return (), dict(call)
        if isinstance(call, str | bytes):
            raise InvalidArguments(
                f"task {self._task.name}: a {type(call).__name__} is not a call: give a sequence of arguments, "
                "such as (1, 2), or a mapping of all arguments by name"
            )
        return tuple(call), {}

    def _sending(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_submitted: bool = False,
        job_id: str | None = None,
    ) -> Sending:
        plan, task = self._plan, self._task
        producer = task.services.producer
        submission = None
        is_stored = is_submitted or plan.lane == "store"
        content_type = JSON if is_stored else producer.content_type
        raw_args, raw_kwargs = task.signature.encode(args, kwargs, content_type)
        if is_stored:
            if plan.job_id is None:
                submission = self._submission
            else:
                compared = task.signature.canonical(args, kwargs, (raw_args, raw_kwargs))
                submission = submission_of(plan, compared=compared, task=task.name)
        elif isinstance(plan, JobPlan) or task.limits or plan.idempotency_key or task.idempotency_key:
            needing = "limits" if task.limits else "idempotency keys"
            check_sendable(plan, task.name, producer.sessions, needing=needing)
        order_key = plan.order_key
        if order_key is None and task.order_key is not None:
            order_key = task.order_key.of(args, kwargs)
        if order_key is not None and plan.run is not None and plan.run.once:
            raise InvalidOption(
                f"task {task.name}: guarantee='at_most_once' cannot be combined with order_key: the next job of the "
                "key would start before this one has ended"
            )
        key = plan.idempotency_key
        if key is None and task.idempotency_key is not None:
            key = task.idempotency_key.of(args, kwargs)
        if key is None and plan.job_id is not None and submission is None and producer.sessions.state_url is not None:
            # With this key, sends with the same job_id are one job.
            key = tenant_key(plan.tenant, plan.job_id)
        now = producer.sessions.clock.now_ms()
        envelope = envelope_of(plan, task.name, raw_args, raw_kwargs, key, order_key, now, job_id)
        if is_stored and task.limits:
            envelope = replace(envelope, limits=task.limit_keys(args, kwargs))
        headers = dict(plan.headers) if plan.headers else {}
        unique = None if task.plan.unique is None else task.unique_call(args, kwargs, tenant=plan.tenant)
        return Sending(envelope, plan.queue, content_type, headers, unique, submission)

    @cached_property
    def _submission(self) -> Submission:
        """Submission of its calls without an id of their own."""
        return submission_of(self._plan, compared=None, task=self._task.name)

    def _jobs_of(self, job_ids: Iterable[str]) -> Iterator[Job[R_co]]:
        task = self._task
        name, jobs, returns, keeps_result = task.name, task.services.jobs, task.returns, task.plan.result is not False
        for job_id in job_ids:
            yield Job(job_id, task=name, jobs=jobs, returns=returns, keeps_result=keeps_result)

    def _send_one(self, sending: Sending) -> Job[R_co]:
        job = self.handle(sending.envelope.id)
        if sending.submission is not None:
            job.existing = sending.submission.existing
        return job


async def _one_by_one(job_ids: AsyncGenerator[str, None]) -> AsyncGenerator[list[str], None]:
    async with aclosing(job_ids):
        async for job_id in job_ids:
            yield [job_id]


class Task(Call[P, R_co]):
    """A registered function: call it to run it here, or `send` it to run it in a worker.

    Attributes:
        name: its name in messages.
        plan: its validated options.
        function: the function itself.
        signature: encodes and decodes its arguments.
        order_key: derives the order keys of its jobs; None if they have no order.
        limits: limits that its runs share across all workers.
        idempotency_key: derives the keys under which its work is done once; None if only calls have keys.
    """

    def __init__(self, function: Callable[..., Any], plan: TaskPlan) -> None:
        super().__init__(self, plan.call)
        self.name: str = plan.name
        self.plan = plan
        self.function = function
        self.signature: Signature = Signature(function, owner=plan.name, injected=Context, is_provided=is_dependency)
        self.limits: tuple[TaskLimit, ...] = bind_limits(plan.limits, function, self.signature, owner=plan.name)
        self.order_key: OrderKey | None = (
            None if plan.order_key is None else OrderKey(plan.order_key, function, self.signature, owner=plan.name)
        )
        maker = plan.idempotency.maker
        self.idempotency_key: ArgumentKey | None = (
            None
            if maker is None
            else ArgumentKey(maker, function, self.signature, owner=plan.name, option="idempotency_key")
        )
        rule = plan.unique
        self._unique_key: ArgumentKey | None = (
            None
            if rule is None
            else ArgumentKey(rule.maker, function, self.signature, owner=plan.name, option="unique")
        )
        self._services: AppServices | None = None
        self._returns: ReturnType | None = None
        self.__doc__ = function.__doc__
        self.__name__: str = getattr(function, "__name__", plan.name)
        self.__module__ = function.__module__
        self.__wrapped__ = function
        if self.signature.is_resolved:
            # Resolved later if a provider's annotation names something that is not defined yet.
            with suppress(NameError):
                self.call = self._with_dependencies()

    def __reduce__(self) -> str:
        """Pickle by reference like a function, so that another process finds the task in its own module."""
        return self.function.__qualname__

    def __copy__(self) -> "Task[P, R_co]":
        """Return a copy, because `__reduce__` would return the same object."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    @cached_property
    def call(self) -> Callable[..., Any]:
        """The function that a worker calls, which provides the function's dependencies if it has any.

        Raises:
            InvalidOption: a provider cannot be called; the message names the chain that leads to it.
        """
        try:
            return self._with_dependencies()
        except NameError as error:
            raise InvalidOption(
                f"task {self.name}: an annotation of a dependency cannot be resolved ({error}); import the name at "
                "module level, outside of `if TYPE_CHECKING`"
            ) from error

    @property
    def services(self) -> AppServices:
        """Services of the task's app.

        Raises:
            InvalidOption: the task belongs to no app yet.
        """
        if self._services is None:
            raise InvalidOption(
                f"task {self.name} belongs to no app yet: call app.include({self.__module__!r}) in the app's module "
                "and import that here; TaskMQ(include=...) alone imports modules only when app.tasks is first read"
            )
        return self._services

    @property
    def is_bound(self) -> bool:
        return self._services is not None

    def bind(self, services: AppServices) -> None:
        """Make the task belong to the app with these services."""
        self._services = services

    def unique_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, tenant: str | None) -> UniqueCall | None:
        """Return the uniqueness rule of a call; None if the task's jobs are not unique.

        Raises:
            InvalidArguments: the arguments yield no key.
        """
        rule = self.plan.unique
        if rule is None or self._unique_key is None:
            return None
        return UniqueCall(unique_key(self.name, self._unique_key.of(args, kwargs), tenant=tenant), rule)

    def limit_keys(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str] | None:
        """Return the keys of a call's limits by their ids; None if no limit of the task has keys.

        Raises:
            InvalidArguments: the arguments yield no key.
        """
        return {limit.id: key for limit in self.limits if (key := limit.key_of(args, kwargs)) is not None} or None

    def with_default_queue(self, queue: str) -> None:
        """Set the queue of a task whose options do not name one."""
        self._plan = replace(self._plan, queue=queue)

    @property
    def returns(self) -> ReturnType:
        if self._returns is None:
            # A task that keeps no results may return anything.
            self._returns = ReturnType(Any) if self.plan.result is False else self.signature.return_type()
        return self._returns

    @property
    def queue(self) -> str:
        """Default queue of calls."""
        return self._plan.queue

    def options(self, **options: Unpack[JobOptions]) -> Call[P, R_co]:
        """Return a call of the task with other options; the task itself does not change.

        Raises:
            InvalidOption: an option is unknown or has an invalid value.
        """
        return self.with_options(options)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def _with_dependencies(self) -> Callable[..., Any]:
        plan = plan_dependencies(self.function, owner=self.name)
        if plan is None:
            return self.function
        if self.plan.executor == "process" and (node := plan.first_async) is not None:
            raise InvalidOption(
                f"task {self.name}: its dependency {node.label} is asynchronous, and a task with executor='process' "
                "has no event loop: make the provider a plain function"
            )
        wrap = inject_async if isinstance(self, AsyncTask) else inject_sync
        return wrap(self.function, plan, self._dependencies, self.name)

    def _dependencies(self) -> Dependencies:
        return _NO_APP if self._services is None else self._services.dependencies

    def _local(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.signature.takes_context:
            context = current_context.get() or Context.create_detached(self.name)
            args, kwargs = self.signature.with_context((args, kwargs), context)
        return self.call(*args, **kwargs)


class SyncTask(Task[P, R_co]):
    """A task whose function is a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here and return its value."""
        return cast("R_co", self._local(args, kwargs))


class AsyncTask(Task[P, R_co]):
    """A task whose function is a coroutine function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Call the function here and return its coroutine."""
        return cast("Coroutine[Any, Any, R_co]", self._local(args, kwargs))

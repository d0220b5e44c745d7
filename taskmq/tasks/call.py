"""Calls of tasks: they build the messages, which the producer of the task's app sends."""

import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from msgspec.structs import replace

from taskmq.client.producer import Producer
from taskmq.errors import InvalidArguments, InvalidOption, PartlySent
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.envelope import JSON
from taskmq.model.keys import tenant_key
from taskmq.model.units import Duration
from taskmq.model.values.celery_words import CeleryHints
from taskmq.options.plans import CallPlan
from taskmq.tasks.envelope import envelope_of
from taskmq.tasks.function import TaskFunction
from taskmq.tasks.job_options import JobPlan, check_sendable, plan_job, refused_by_broker, submission_of

if TYPE_CHECKING:
    from taskmq.tasks.call_shapes import TakesFirst, TakesOne
    from taskmq.workflow.parts import Group, OpenStep, Step
    from taskmq.workflow.step_call import StepCall

P = ParamSpec("P")
Q = ParamSpec("Q")
A = TypeVar("A")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

Arguments = Sequence[Any] | Mapping[str, Any]
"""Arguments of one of many calls: positional ones, or all by name."""


class Call(CeleryHints, Generic[P, R_co]):
    """A task with options for its calls.

    Attributes:
        call_plan: the validated options.
    """

    def __init__(self, task: TaskFunction, plan: CallPlan) -> None:
        self._task = task
        self.call_plan = plan

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
        """Build the messages of many stored jobs, like `submission`."""
        for call in calls:
            yield self._sending(*self._arguments_of(call), is_submitted=True)

    def with_options(self, options: Mapping[str, Any]) -> "Call[P, R_co]":
        """Return the same call with these options, which override its own.

        Raises:
            InvalidOption: an option is unknown or has an invalid value.
        """
        if not options:
            return self
        return Call(self._task, plan_job(self.call_plan, options, task=self._task.name))

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

        if isinstance(self.call_plan, JobPlan):
            raise refused_by_broker(self._task.name)
        plan = None if self.call_plan is self._task.call_plan else self.call_plan
        return StepCall(self._task, plan, args, kwargs, {}, is_fed=is_fed)

    @property
    def _goes_one_by_one(self) -> bool:
        return self._task.plan.unique is not None or self.call_plan.lane == "store"

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
        if self.call_plan.job_id is not None:
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
    ) -> Sending:
        plan, task = self.call_plan, self._task
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
        envelope = envelope_of(plan, task.name, raw_args, raw_kwargs, key, order_key, now)
        if is_stored and task.limits:
            envelope = replace(envelope, limits=task.limit_keys(args, kwargs))
        headers = dict(plan.headers) if plan.headers else {}
        unique = None if task.plan.unique is None else task.unique_call(args, kwargs, tenant=plan.tenant)
        return Sending(envelope, plan.queue, content_type, headers, unique, submission)

    @cached_property
    def _submission(self) -> Submission:
        """Submission of its calls without an id of their own."""
        return submission_of(self.call_plan, compared=None, task=self._task.name)

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
